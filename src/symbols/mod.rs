//! Names: functions, data, source lines and inlined calls of addresses.
//!
//! In: [`Modules`](crate::unwind::Modules) and the debug files behind
//! [`Files`](crate::image::Files). Out: a name only where the symbol's size covers the address; otherwise the
//! caller prints module+offset. It reads no memory of the target and opens no file itself.

use crate::image::{Addr, ProcessImage};
use crate::unwind::Modules;

/// A function or object that covers an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Demangled name.
    pub name: String,
    /// Address of its first byte in the process.
    pub address: Addr,
    /// Its size in bytes.
    pub size: u64,
}

/// One source position; an address in inlined code has several, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    /// Demangled function name, from debug information.
    pub function: Option<String>,
    /// Path as the compiler recorded it.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Whether this is an inlined call.
    pub inlined: bool,
}

/// Looks names up, module by module, parsing each symbol table and each debug file at the first question only.
#[derive(Debug)]
pub struct Symbols<'a> {
    modules: &'a Modules,
    image: &'a ProcessImage,
}

impl<'a> Symbols<'a> {
    /// A symboliser over these modules.
    pub fn new(modules: &'a Modules, image: &'a ProcessImage) -> Self {
        Symbols { modules, image }
    }

    /// The modules it names.
    pub fn modules(&self) -> &'a Modules {
        self.modules
    }

    /// The function that covers `address` (.symtab, .dynsym, .gnu_debugdata, separate debug file).
    pub fn function(&self, _address: Addr) -> Option<Symbol> {
        let _ = self.image;
        None
    }

    /// The data object (global or static variable) that covers `address`.
    pub fn object(&self, _address: Addr) -> Option<Symbol> {
        None
    }

    /// The exported or local symbol of exactly this (mangled) name in module `module`.
    pub fn find(&self, _module: usize, _name: &str) -> Option<Symbol> {
        None
    }

    /// Source positions of `address`, innermost inlined call first; empty without debug information.
    pub fn source(&self, _address: Addr) -> Vec<SourceFrame> {
        Vec::new()
    }
}
