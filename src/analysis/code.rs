//! The code that processes have mapped, so that an address of a report can be found in the file it came from.
//!
//! In: what was captured, and its modules. Out: [`CodeMapping`]s. No file is read.

use std::ops::Range;

use crate::image::{Addr, Image, Mapping};
use crate::modules::Modules;
use crate::symbols::Tables;

/// Code that a file was mapped for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeMapping {
    /// Its addresses.
    pub addresses: Range<Addr>,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file's path.
    pub path: String,
    /// The file's build-id, in hexadecimal digits.
    pub build: Option<String>,
}

/// The code of each process.
pub(super) fn of(image: &Image, modules: &[(Modules, Tables)]) -> Vec<Vec<CodeMapping>> {
    let processes = image.processes.iter().zip(modules);
    let code = |modules: &Modules, mapping: &Mapping| {
        let module = modules.at(mapping.start).and_then(|position| modules.list.get(position));
        let digits = |id: &Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(CodeMapping {
            addresses: mapping.start..mapping.end,
            offset: mapping.offset,
            path: mapping.path.clone()?,
            build: module.and_then(|module| module.build_id.as_ref()).map(digits),
        })
    };
    processes
        .map(|(process, (modules, _))| {
            let executable = process.mappings.iter().filter(|mapping| mapping.execute && mapping.is_file());
            executable.filter_map(|mapping| code(modules, mapping)).collect()
        })
        .collect()
}
