//! A code object's uses, or those of the part that is ahead of a frame: names, globals, constants, imports.
//!
//! In: nothing. Out: [`Uses`], the same for each walk that comes to the code, and the [`Memo`] that keeps it. [`reach`](super::reach) reads
//! it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::image::Addr;

/// A code object, or the part of it that is ahead of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CodePart {
    /// The code object.
    pub(crate) code: Addr,
    /// The dictionary of its globals.
    pub(crate) globals: Option<Addr>,
    /// The name of its module, where a function tells it.
    pub(crate) module: Option<Addr>,
    /// The instruction at which the frame stands; none for the whole code.
    pub(crate) ahead_of: Option<u64>,
}

/// Answers about the code of one process, which walks share.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    pub(crate) uses: RefCell<HashMap<CodePart, Option<Rc<Uses>>>>,
    /// Whether code waits on behalf of its caller, by the code object and its module.
    pub(crate) waits: RefCell<HashMap<(Addr, Option<Addr>), bool>>,
}

/// The uses of a part of code.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// It is of the standard library, or waits on behalf of its caller.
    pub(crate) of_library: bool,
    /// It releases without having taken, and is not the end of a block.
    pub(crate) gives_away: bool,
    /// Names of attributes, globals and variables, and those that it builds out of its strings.
    pub(crate) names: HashSet<Rc<str>>,
    /// Names of globals that it puts something else in the place of, of the part that is ahead of a frame.
    pub(crate) stored: HashSet<Rc<str>>,
    /// The objects under the names: among its globals, the builtins and the modules that it imports.
    pub(crate) objects: Vec<Addr>,
    /// Modules that it imports, and that are not loaded.
    pub(crate) late: Vec<String>,
    /// The code objects of functions that are defined in it.
    pub(crate) inner: Vec<Addr>,
    /// A name by which it may reach anything.
    pub(crate) opens: Option<Rc<str>>,
}
