//! Functions of the process by their names, without `dlsym`: old C libraries have that in a library of its own, which a
//! program need not have, and it waits for the loader's lock where a program asks from a constructor.
//!
//! In: a name. Out: its address in the first library behind this one that defines it in its default version, which is
//! what `dlsym(RTLD_NEXT, ..)` finds; or in any. It reads the tables of the libraries as the loader does (System V
//! gABI, chapter 5; GNU hash tables).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `Elf64_Phdr`.
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    alignment: u64,
}

/// The beginning of `struct dl_phdr_info`.
#[repr(C)]
struct Library {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

unsafe extern "C" {
    /// In the C library of every program, of glibc and of musl.
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Library, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// The names to find.
struct Search<'n> {
    names: &'n [&'static CStr],
    addresses: &'n [AtomicUsize],
    /// Only behind this library.
    is_behind: bool,
    was_here: bool,
}

/// The address of `name` in the libraries behind this one, or 0.
pub(crate) fn next(name: &'static CStr) -> usize {
    one(name, true)
}

/// The address of `name` in the program or any library, or 0.
pub(crate) fn any(name: &'static CStr) -> usize {
    one(name, false)
}

fn one(name: &'static CStr, is_behind: bool) -> usize {
    let address = AtomicUsize::new(0);
    search(&[name], core::slice::from_ref(&address), is_behind);
    address.into_inner()
}

/// The same as [`next`] for many names, except those that have an address already.
pub(crate) fn all_next(names: &[&'static CStr], addresses: &[AtomicUsize]) {
    search(names, addresses, true);
}

/// Whether an address is in a library whose file's name begins so.
pub(crate) fn is_in(address: usize, name: &'static [u8]) -> bool {
    let mut place = Place { address, name, is_it: false };
    // SAFETY: the callback gets the place as long as it lives.
    unsafe { dl_iterate_phdr(compare, (&raw mut place).cast()) };
    place.is_it
}

/// The question whether an address is in a library of this name.
struct Place {
    address: usize,
    name: &'static [u8],
    is_it: bool,
}

unsafe extern "C" fn compare(library: *const Library, _: usize, place: *mut c_void) -> c_int {
    // SAFETY: the loader gives a library that is mapped, and the place that was passed to it.
    let (library, place) = unsafe { (&*library, &mut *place.cast::<Place>()) };
    if !has(library, place.address) || library.name.is_null() {
        return 0;
    }
    // SAFETY: the loader's own text.
    let path = unsafe { CStr::from_ptr(library.name) }.to_bytes();
    place.is_it = path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(place.name));
    1
}

/// Whether an address is in one of the library's segments.
fn has(library: &Library, address: usize) -> bool {
    (0..usize::from(library.header_count)).any(|position| {
        // SAFETY: there are as many headers.
        let header = unsafe { &*library.headers.add(position) };
        let start = library.base.wrapping_add(header.address as usize);
        header.kind == 1 && (start..start.wrapping_add(header.memory_size as usize)).contains(&address)
    })
}

fn search(names: &[&'static CStr], addresses: &[AtomicUsize], is_behind: bool) {
    let mut search = Search { names, addresses, is_behind, was_here: false };
    // SAFETY: the callback gets the search as long as it lives.
    unsafe { dl_iterate_phdr(visit, (&raw mut search).cast()) };
}

unsafe extern "C" fn visit(library: *const Library, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader gives a library that is mapped, and the search that was passed to it.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search<'_>>()) };
    let own = visit as *const () as usize;
    if has(library, own) {
        search.was_here = true;
        return 0;
    }
    if search.is_behind && !search.was_here {
        return 0;
    }
    // SAFETY: a library that is mapped.
    let Some(tables) = (unsafe { Tables::of(library) }) else { return 0 };
    let mut are_found = true;
    for (name, address) in search.names.iter().zip(search.addresses) {
        if address.load(Ordering::Relaxed) != 0 {
            continue;
        }
        // SAFETY: the tables of that library.
        match unsafe { tables.find(name) } {
            0 => are_found = false,
            found => address.store(found, Ordering::Relaxed),
        }
    }
    c_int::from(are_found)
}

/// Where a library has its symbols.
struct Tables {
    base: usize,
    symbols: *const Symbol,
    strings: usize,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
}

impl Tables {
    /// # Safety
    ///
    /// The loader has mapped the library.
    unsafe fn of(library: &Library) -> Option<Tables> {
        let base = library.base;
        let (mut symbols, mut strings, mut versions, mut gnu_hash, mut hash) = (0, 0, 0, 0, 0);
        // SAFETY: there are as many headers; the dynamic section ends by an entry with the tag 0.
        unsafe {
            let mut headers = (0..usize::from(library.header_count)).map(|position| &*library.headers.add(position));
            let dynamic = headers.rfind(|header| header.kind == 2)?;
            let dynamic = base.wrapping_add(dynamic.address as usize) as *const [usize; 2];
            for position in 0.. {
                let [tag, value] = *dynamic.add(position);
                let at = match tag {
                    0 => break,
                    4 => &mut hash,
                    5 => &mut strings,
                    6 => &mut symbols,
                    0x6fff_fef5 => &mut gnu_hash,
                    0x6fff_fff0 => &mut versions,
                    _ => continue,
                };
                // glibc has added the base already, but not in what it may not write to, and musl has not.
                *at = match base.wrapping_add(value) {
                    _ if has(library, value) => value,
                    added if has(library, added) => added,
                    _ => 0,
                };
            }
        }
        (symbols != 0 && strings != 0).then_some(Tables {
            base,
            symbols: symbols as *const Symbol,
            strings,
            versions: versions as *const u16,
            gnu_hash: gnu_hash as *const u32,
            hash: hash as *const u32,
        })
    }

    /// The address of this name in the library, or 0.
    ///
    /// # Safety
    ///
    /// The library is mapped still.
    unsafe fn find(&self, name: &CStr) -> usize {
        // SAFETY: tables of the library, followed as the loader follows them.
        let position = unsafe {
            let is_it = |position: usize| {
                let symbol = &*self.symbols.add(position);
                let binding = symbol.info >> 4;
                // The bit of a version that is there for old programs alone.
                let is_hidden = !self.versions.is_null() && *self.versions.add(position) & 0x8000 != 0;
                symbol.section != 0
                    && (binding == 1 || binding == 2)
                    && !is_hidden
                    && CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char) == name
            };
            match (self.gnu_hash.is_null(), self.hash.is_null()) {
                (true, true) => None,
                (true, false) => by_hash(self.hash, name, is_it),
                (false, _) => by_gnu_hash(self.gnu_hash, name, is_it),
            }
        };
        let Some(position) = position else { return 0 };
        // SAFETY: the entry that was found.
        let symbol = unsafe { &*self.symbols.add(position) };
        called(self.base.wrapping_add(symbol.value as usize), symbol.info)
    }
}

/// The address of a function or variable by that of its symbol.
fn called(address: usize, info: u8) -> usize {
    if info & 15 == 10 {
        // SAFETY: an indirect function gives the address of the one to call.
        return unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address)() };
    }
    address
}

unsafe fn by_hash(table: *const u32, name: &CStr, is_it: impl Fn(usize) -> bool) -> Option<usize> {
    let mut wanted = 0u32;
    for byte in name.to_bytes() {
        wanted = (wanted << 4).wrapping_add(u32::from(*byte));
        let high = wanted & 0xf000_0000;
        wanted = (wanted ^ (high >> 24)) & !high;
    }
    // SAFETY: the number of buckets, of chains, the buckets, the chains.
    unsafe {
        let buckets = *table;
        if buckets == 0 {
            return None;
        }
        let chains = table.add(2 + buckets as usize);
        let mut position = *table.add(2 + (wanted % buckets) as usize);
        while position != 0 {
            if is_it(position as usize) {
                return Some(position as usize);
            }
            position = *chains.add(position as usize);
        }
    }
    None
}

unsafe fn by_gnu_hash(table: *const u32, name: &CStr, is_it: impl Fn(usize) -> bool) -> Option<usize> {
    let wanted =
        name.to_bytes().iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    // SAFETY: the number of buckets, the first symbol, the words of the filter, its shift; the filter, the buckets, the
    // chains.
    unsafe {
        let (buckets, first, filter, shift) = (*table, *table.add(1), *table.add(2), *table.add(3));
        if buckets == 0 {
            return None;
        }
        let word = *table.add(4).cast::<u64>().add(((wanted >> 6) & filter.wrapping_sub(1)) as usize);
        if word >> (wanted & 63) & word >> (wanted >> (shift & 31) & 63) & 1 == 0 {
            return None;
        }
        let list = table.add(4 + 2 * filter as usize);
        let chains = list.add(buckets as usize);
        let mut position = *list.add((wanted % buckets) as usize);
        if position < first {
            return None;
        }
        loop {
            let hash = *chains.add((position - first) as usize);
            if hash | 1 == wanted | 1 && is_it(position as usize) {
                return Some(position as usize);
            }
            if hash & 1 == 1 {
                return None;
            }
            position += 1;
        }
    }
}
