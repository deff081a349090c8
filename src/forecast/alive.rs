//! The loaded modules of a process that still runs. It has not come to its end, at which the recorder writes them down.
//!
//! In: the file of a recorder. Out: its orders with all code that the process has now. The process is the one of the
//! file if it has mapped that very file: an id may have been given again, or be of another machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::image::Mapping;
use crate::image::live::parse_maps;
use crate::recorder::orders::{MappedCode, Orders};

/// Add the code that the process of this file has now, where it runs.
pub(super) fn complete(file: &Path, orders: &mut Orders) {
    if orders.has_all_code != Some(false) {
        return;
    }
    let Ok(maps) = fs::read(format!("/proc/{}/maps", orders.process)) else { return };
    let Ok(inode) = fs::metadata(file).map(|metadata| metadata.ino()) else { return };
    add(&parse_maps(&maps), file, inode, orders);
}

fn add(mappings: &[Mapping], file: &Path, inode: u64, orders: &mut Orders) {
    let is_file = |mapping: &Mapping| {
        let name = mapping.path.as_deref().map(Path::new).and_then(Path::file_name);
        mapping.inode == inode && name.is_some() && name == file.file_name()
    };
    if !mappings.iter().any(is_file) {
        return;
    }
    let code = mappings.iter().filter(|mapping| mapping.execute && mapping.is_file()).filter_map(|mapping| {
        let path = mapping.path.clone()?;
        Some(MappedCode { start: mapping.start, end: mapping.end, offset: mapping.offset, path })
    });
    for code in code {
        if orders.code.iter().all(|known| known.start != code.start) {
            orders.code.push(code);
        }
    }
    orders.has_all_code = Some(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Addr;

    const MAPS: &[u8] = b"00400000-00500000 r-xp 00000000 08:01 7  /bin/program
00500000-00600000 rw-p 00000000 08:01 7  /bin/program
7f0000000000-7f0000010000 rw-s 00000000 08:01 99  /tmp/orders/5-1.orders
7f0000010000-7f0000020000 r-xp 00001000 08:01 8  /lib/one.so
7f0000020000-7f0000030000 r-xp 00000000 00:00 0  [vdso]
";

    #[test]
    fn who_has_the_file_mapped_is_the_process_of_it() {
        let known = MappedCode { start: Addr(0x40_0000), end: Addr(0x50_0000), offset: 0, path: "/bin/program".into() };
        let begun = Orders { code: vec![known], has_all_code: Some(false), ..Orders::default() };
        let with = |file: &str, inode: u64| {
            let mut orders = begun.clone();
            add(&parse_maps(MAPS), Path::new(file), inode, &mut orders);
            let paths: Vec<String> = orders.code.into_iter().map(|code| code.path).collect();
            (orders.has_all_code, paths)
        };
        let all = vec!["/bin/program".to_owned(), "/lib/one.so".to_owned()];
        assert_eq!(with("/elsewhere/5-1.orders", 99), (Some(true), all));
        // Another process with the same id, or another file.
        assert_eq!(with("/tmp/orders/5-1.orders", 98).0, Some(false));
        assert_eq!(with("/tmp/orders/5-2.orders", 99).0, Some(false));
    }
}
