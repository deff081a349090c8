//! What one code object uses, or the part of it that is ahead of a frame: names, globals, constants, imports.
//!
//! In: nothing. Out: [`Uses`], the same for each walk that comes to the code, and the [`Memo`] that keeps it. [`reach`](super::reach) reads
//! it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::image::Addr;

/// A code object, the dictionary of its globals, the name of its module, and where the frame stands whose part it is.
pub(crate) type Place = (Addr, Option<Addr>, Option<Addr>, Option<u64>);

/// What walks through one process have read of its code.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    pub(crate) uses: RefCell<HashMap<Place, Option<Rc<Uses>>>>,
    pub(crate) waits: RefCell<HashMap<(Addr, Option<Addr>), bool>>,
}

/// What code uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// It is of the standard library, or waits on behalf of its caller.
    pub(crate) of_library: bool,
    /// It releases without having taken, and is not the end of a block.
    pub(crate) gives_away: bool,
    /// Names of attributes, globals and variables, and those that it builds out of its strings.
    pub(crate) names: HashSet<Rc<str>>,
    /// What stands under the names among its globals, the builtins and the modules that it imports.
    pub(crate) objects: Vec<Addr>,
    /// Modules that it imports, and that are not loaded.
    pub(crate) late: Vec<String>,
    /// The code objects of functions that are defined in it.
    pub(crate) inner: Vec<Addr>,
    /// A name by which it may reach anything.
    pub(crate) opens: Option<Rc<str>>,
}
