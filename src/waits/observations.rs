//! What the whole stage gives.
//!
//! In: nothing. Out: [`Observations`], which families and rules fill, and which graph, verdict and report read.

use super::circumstances::{CudaLibrary, Handled};
use super::model::{Enclosed, Hold, Hope, Resource, ResourceKey, Wait};
use crate::image::Gap;

/// All that the families found in one sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observations {
    /// Every resource named by a wait or hold, once.
    pub resources: Vec<Resource>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// What could end waits beside those who hold what is waited for.
    pub hopes: Vec<Hope>,
    /// What nobody but the hopes and the holders can give.
    pub enclosed: Vec<Enclosed>,
    /// Libraries of CUDA.
    pub cuda: Vec<CudaLibrary>,
    /// Exceptions of Python that threads handle now.
    pub handled: Vec<Handled>,
    /// What could not be decided.
    pub gaps: Vec<Gap>,
    /// The gaps of locks that count their readers and name none: a family that knows more of them takes its own away.
    pub nameless_readers: Vec<(ResourceKey, Gap)>,
}

impl Observations {
    /// What is known of a resource.
    pub(crate) fn resource(&self, key: &ResourceKey) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.key == *key)
    }
}
