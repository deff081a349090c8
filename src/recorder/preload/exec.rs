//! Programs that the process becomes, and in which the recorder has no business.
//!
//! In: `execve`, `execv`, `execvp`, `execvpe`, `execl`, `execlp`, `execle`, `fexecve`, `execveat`, `posix_spawn`,
//! `posix_spawnp`, `pidfd_spawn`, `pidfd_spawnp`. Out: the same, but without the recorder in `LD_PRELOAD` for programs
//! of another machine or word size, in which the loader would print an error; for those with a sanitizer, which stands
//! in front of the same functions and refuses to be second; and for those that carry their environment to other
//! machines or file systems, where the file is not. It reads the first bytes of the program. One that is looked for
//! on the PATH is known by its name alone.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{
    CLOSE, EXECVEAT, FACCESSAT, MACHINE, MMAP, MUNMAP, OPENAT, READ, READLINK, STATX, interposed, listed, raw_call,
    system_call,
};
use crate::file::decimal;
use crate::loaded;
use crate::real::{self, Real, call, call_with_six};
use crate::symbols::any;

interposed! {
    execve => execute;
    execv => execute_as_it_is;
    execvp => execute_on_path;
    execvpe => execute_on_path_with;
    fexecve => execute_descriptor;
}

listed! {
    execl => execute_as_it_is;
    execlp => execute_on_path;
    execle => execute_with_last;
}

/// # Safety
///
/// `posix_spawn` as the C library has it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_spawn(a: usize, path: usize, c: usize, d: usize, arguments: usize, list: usize) -> i32 {
    spawned(Real::SPAWN, [a, path, c, d, arguments, list])
}

/// # Safety
///
/// `posix_spawnp` as the C library has it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_spawnp(a: usize, file: usize, c: usize, d: usize, arguments: usize, list: usize) -> i32 {
    spawned(Real::SPAWNP, [a, file, c, d, arguments, list])
}

/// # Safety
///
/// `pidfd_spawn` as glibc has it from 2.39 on.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pidfd_spawn(a: usize, path: usize, c: usize, d: usize, arguments: usize, list: usize) -> i32 {
    spawned(Real::PIDFD_SPAWN, [a, path, c, d, arguments, list])
}

/// # Safety
///
/// `pidfd_spawnp` as glibc has it from 2.39 on.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pidfd_spawnp(a: usize, file: usize, c: usize, d: usize, arguments: usize, list: usize) -> i32 {
    spawned(Real::PIDFD_SPAWNP, [a, file, c, d, arguments, list])
}

/// # Safety
///
/// `execveat` as glibc has it from 2.34 on.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execveat(folder: usize, path: usize, arguments: usize, list: usize, flags: usize) -> i32 {
    loaded::ends();
    // SAFETY: what the caller has given; it is no text that is empty but with the flag.
    let is_descriptor = flags & EMPTY_PATH != 0 && path != 0 && unsafe { *(path as *const u8) } == 0;
    let without = match is_descriptor {
        _ if path == 0 || list == 0 => None,
        true => without_recorder(&Program::Descriptor(folder), list),
        false => without_recorder(&Program::In(folder, path), list),
    };
    let arguments = [folder, path, arguments, without.map_or(list, |made| made.at), flags, 0];
    match real::has(Real::EXECVEAT) {
        true => call_with_six(Real::EXECVEAT, arguments),
        // The program has found this function where the C library has none, and is no worse off.
        false => {
            raw_call(EXECVEAT, arguments);
            -1
        }
    }
}

/// `AT_EMPTY_PATH`: the call is about the descriptor itself.
const EMPTY_PATH: usize = 0x1000;
/// `AT_FDCWD`.
const HERE: usize = -100isize as usize;

/// A program that is to be started.
enum Program {
    /// A path from a folder, which has a descriptor.
    In(usize, usize),
    /// An open file.
    Descriptor(usize),
}

impl Program {
    fn at(path: usize) -> Program {
        Program::In(HERE, path)
    }
}

/// Here the caller goes on: the new environment is given back.
fn spawned(function: Real, arguments: [usize; 6]) -> i32 {
    let [a, path, c, d, words, environment] = arguments;
    let with = if environment == 0 { own_environment() } else { environment };
    match if path != 0 && with != 0 { without_recorder(&Program::at(path), with) } else { None } {
        None => call_with_six(function, arguments),
        Some(made) => {
            let result = call_with_six(function, [a, path, c, d, words, made.at]);
            system_call(MUNMAP, [made.at, made.size, 0, 0, 0, 0]);
            result
        }
    }
}

/// The address of `environ`.
static ENVIRONMENT: AtomicUsize = AtomicUsize::new(0);

/// Programs that start others elsewhere with this environment.
const CARRIERS: [&CStr; 18] = [
    c"srun",
    c"sbatch",
    c"salloc",
    c"mpirun",
    c"mpiexec",
    c"orterun",
    c"prterun",
    c"docker",
    c"podman",
    c"kubectl",
    c"qsub",
    c"bsub",
    c"ssh",
    c"chroot",
    c"bwrap",
    c"apptainer",
    c"singularity",
    c"flatpak",
];
/// The variable, and the name of this file.
const VARIABLE: &[u8] = b"LD_PRELOAD=";
const OWN: &[u8] = b"liblockscope_recorder";
/// Variables and bytes of the new environment; larger ones stay as they are.
const MOST: usize = 8192;
const LONGEST: usize = 4096;

extern "C" fn execute(path: usize, arguments: usize, environment: usize, _: usize) -> i32 {
    loaded::ends();
    let without = if path != 0 && environment != 0 { without_recorder(&Program::at(path), environment) } else { None };
    call(Real::EXECVE, path, arguments, without.map_or(environment, |made| made.at), 0)
}

extern "C" fn execute_as_it_is(path: usize, arguments: usize, _: usize, _: usize) -> i32 {
    loaded::ends();
    let environment = own_environment();
    match if path != 0 && environment != 0 { without_recorder(&Program::at(path), environment) } else { None } {
        None => call(Real::EXECV, path, arguments, 0, 0),
        Some(made) => call(Real::EXECVE, path, arguments, made.at, 0),
    }
}

/// `execle`: behind the null pointer that ends the arguments is the environment.
extern "C" fn execute_with_last(path: usize, arguments: usize, _: usize, _: usize) -> i32 {
    let mut end = arguments as *const usize;
    // SAFETY: the caller has put a null pointer behind its last argument, and one more word.
    let environment = unsafe {
        while *end != 0 {
            end = end.add(1);
        }
        *end.add(1)
    };
    execute(path, arguments, environment, 0)
}

extern "C" fn execute_on_path(file: usize, arguments: usize, _: usize, _: usize) -> i32 {
    loaded::ends();
    let environment = own_environment();
    match if file != 0 && environment != 0 { without_recorder(&Program::at(file), environment) } else { None } {
        None => call(Real::EXECVP, file, arguments, 0, 0),
        Some(made) => call(Real::EXECVPE, file, arguments, made.at, 0),
    }
}

extern "C" fn execute_on_path_with(file: usize, arguments: usize, environment: usize, _: usize) -> i32 {
    loaded::ends();
    let without = if file != 0 && environment != 0 { without_recorder(&Program::at(file), environment) } else { None };
    call(Real::EXECVPE, file, arguments, without.map_or(environment, |made| made.at), 0)
}

extern "C" fn execute_descriptor(file: usize, arguments: usize, environment: usize, _: usize) -> i32 {
    loaded::ends();
    let program = Program::Descriptor(file);
    let without = if environment != 0 { without_recorder(&program, environment) } else { None };
    call(Real::FEXECVE, file, arguments, without.map_or(environment, |made| made.at), 0)
}

/// The environment as it is now.
fn own_environment() -> usize {
    let variable = ENVIRONMENT.load(Ordering::Relaxed) as *const usize;
    // SAFETY: char **environ.
    if variable.is_null() { 0 } else { unsafe { *variable } }
}

/// Memory with a new environment.
#[derive(Clone, Copy)]
struct Made {
    at: usize,
    size: usize,
}

/// Look up where the environment is: a child of fork may not ask the loader.
pub(crate) fn begin() {
    ENVIRONMENT.store(any(c"environ"), Ordering::Relaxed);
}

/// The environment without the recorder, where the program is none for it. It is in new memory, since the caller may
/// share all else with its parent (vfork), and goes with the program that is left.
fn without_recorder(program: &Program, environment: usize) -> Option<Made> {
    let is_for_it = match program {
        Program::In(folder, path) => {
            // SAFETY: the path of execve(const char *, char *const[], char *const[]).
            let name = unsafe { CStr::from_ptr(*path as *const c_char) };
            !is_foreign(*folder, *path) && !is_carrier(name.to_bytes())
        }
        Program::Descriptor(file) => {
            let (mut path, mut digits) = ([0u8; 40], [0u8; 20]);
            let parts = b"/proc/self/fd/".iter().chain(decimal(*file as u32 as u64, &mut digits));
            path.iter_mut().zip(parts).for_each(|(byte, from)| *byte = *from);
            let mut name = [0u8; 512];
            let length =
                system_call(READLINK, [HERE, path.as_ptr() as usize, name.as_mut_ptr() as usize, name.len(), 0, 0]);
            let name = usize::try_from(length).ok().and_then(|length| name.get(..length)).unwrap_or_default();
            !is_foreign(HERE, path.as_ptr() as usize) && !is_carrier(name)
        }
    };
    // SAFETY: the environment of execve.
    unsafe {
        let environment = environment as *const *const c_char;
        let mut count = 0;
        let mut place = None;
        while !(*environment.add(count)).is_null() && count < MOST {
            let variable = CStr::from_ptr(*environment.add(count)).to_bytes();
            if variable.strip_prefix(VARIABLE).is_some_and(|value| value.windows(OWN.len()).any(|part| part == OWN)) {
                place = Some((count, variable));
            }
            count += 1;
        }
        let (place, variable) = place.filter(|(_, variable)| count < MOST && variable.len() < LONGEST)?;
        let libraries = || {
            let all = variable.strip_prefix(VARIABLE).unwrap_or_default();
            all.split(|byte| matches!(byte, b':' | b' ')).filter(|one| !one.is_empty())
        };
        let is_own = |library: &[u8]| library.windows(OWN.len()).any(|part| part == OWN);
        // Another user, or another root, may not get at the library, and the loader would say so on standard error.
        if is_for_it && libraries().filter(|one| is_own(one)).all(can_be_opened) {
            return None;
        }
        let size = (count + 1) * size_of::<usize>() + LONGEST;
        let memory = system_call(MMAP, [0, size, 3, 0x22, usize::MAX, 0]);
        if memory <= 0 {
            return None;
        }
        let list = memory as *mut *const c_char;
        core::ptr::copy_nonoverlapping(environment, list, count + 1);
        let text = list.add(count + 1).cast::<u8>();
        let mut used = 0;
        let mut write = |bytes: &[u8]| {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), text.add(used), bytes.len());
            used += bytes.len();
        };
        write(VARIABLE);
        let mut is_first = true;
        for library in libraries().filter(|one| !is_own(one)) {
            if !is_first {
                write(b":");
            }
            is_first = false;
            write(library);
        }
        write(b"\0");
        *list.add(place) = text.cast_const().cast();
        Some(Made { at: memory as usize, size })
    }
}

/// Whether this process, as it is now, can open a file.
fn can_be_opened(path: &[u8]) -> bool {
    const CLOSE_ON_EXEC: usize = 0o2000000;
    let mut name = [0u8; 512];
    // The last byte is the end of the text. A longer name is not asked for.
    let room = name.get_mut(..path.len()).filter(|room| room.len() < 512);
    let Some(room) = room.filter(|_| !crate::filters::is_filtered()) else { return true };
    room.copy_from_slice(path);
    let file = system_call(OPENAT, [HERE, name.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
    if file >= 0 {
        system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    }
    // Capabilities that are kept for another user's id end with the program; this call does not count them.
    const TO_READ: usize = 4;
    file >= 0 && system_call(FACCESSAT, [HERE, name.as_ptr() as usize, TO_READ, 0, 0, 0]) == 0
}

fn is_carrier(path: &[u8]) -> bool {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    CARRIERS.iter().any(|carrier| carrier.to_bytes() == last)
}

/// Whether one of these names stands among the bytes. All begin alike, and few other places do.
fn has_any(bytes: &[u8], names: &[&[u8]]) -> bool {
    let begins = bytes.windows(BEGINNING.len()).enumerate().filter(|(_, part)| *part == BEGINNING);
    begins.filter_map(|(at, _)| bytes.get(at..)).any(|rest| names.iter().any(|name| rest.starts_with(name)))
}

/// Libraries of sanitizers, as a program that needs them names them.
const BEGINNING: [u8; 3] = *b"lib";
const SANITIZERS: [&[u8]; 3] = [b"libasan.so", b"libtsan.so", b"libhwasan.so"];
/// Bytes of a program in which these names are looked for.
const LOOKED_AT: usize = 16 << 10;

/// Whether it is a plain file: nothing else can be a program, and to open or read a pipe or a device waits, or takes
/// from it.
fn is_plain(folder: usize, path: usize) -> bool {
    /// `STATX_TYPE`; and where `struct statx` has its mode, and `S_IFMT` of it, from Linux 4.11 on.
    const TYPE: usize = 1;
    const MODE_AT: usize = 28;
    const TYPE_BITS: u16 = 0o170000;
    const PLAIN: u16 = 0o100000;
    let mut about = [0u8; 256];
    let answer = system_call(STATX, [folder, path, 0, TYPE, about.as_mut_ptr() as usize, 0]);
    let mode = about.get(MODE_AT..MODE_AT + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes);
    answer == 0 && mode & TYPE_BITS == PLAIN
}

/// Whether the file is a program for another loader than this one's, of 32 bits or of another machine; or has a
/// sanitizer.
fn is_foreign(folder: usize, path: usize) -> bool {
    /// `O_CLOEXEC`, and `O_NONBLOCK`: it may have become a pipe in the meantime.
    const HOW: usize = 0o2000000 | 0o4000;
    if !is_plain(folder, path) {
        return false;
    }
    let file = system_call(OPENAT, [folder, path, HOW, 0, 0, 0]);
    if file < 0 {
        return false;
    }
    // The program's requirements are among its first bytes. A thread may have little room for them on its stack.
    let memory = system_call(MMAP, [0, LOOKED_AT, 3, 0x22, usize::MAX, 0]);
    let mut is_foreign = false;
    if memory > 0 {
        let read = system_call(READ, [file as usize, memory as usize, LOOKED_AT, 0, 0, 0]);
        // SAFETY: the call filled this much of the new memory.
        let bytes = unsafe { core::slice::from_raw_parts(memory as *const u8, usize::try_from(read).unwrap_or(0)) };
        if let [0x7f, b'E', b'L', b'F', class, rest @ ..] = bytes
            && let Some([low, high]) = rest.get(13..15)
        {
            is_foreign = *class != 2 || u16::from_le_bytes([*low, *high]) != MACHINE || has_any(bytes, &SANITIZERS);
        }
        system_call(MUNMAP, [memory as usize, LOOKED_AT, 0, 0, 0, 0]);
    }
    system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    is_foreign
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment that a program gets, in place of one with the recorder among others.
    fn given(program: &CStr, preload: &CStr) -> Vec<Vec<u8>> {
        let mut environment = [c"A=1".as_ptr(), preload.as_ptr(), c"B=2".as_ptr(), core::ptr::null()];
        let at = environment.as_mut_ptr() as usize;
        let made = without_recorder(&Program::at(program.as_ptr() as usize), at);
        let list = made.map_or(at, |made| made.at) as *const *const c_char;
        // SAFETY: an environment, which ends by a null.
        let read = (0..).map(|position| unsafe { *list.add(position) }).take_while(|text| !text.is_null());
        // SAFETY: texts of it.
        let all = read.map(|text| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()).collect();
        if let Some(made) = made {
            system_call(MUNMAP, [made.at, made.size, 0, 0, 0, 0]);
        }
        all
    }

    #[test]
    fn the_recorder_is_taken_out_for_programs_that_carry_it_elsewhere() {
        let library = std::env::temp_dir().join(format!("liblockscope_recorder-{}.so", std::process::id()));
        std::fs::write(&library, "").expect("a file");
        let preload = format!("LD_PRELOAD={}:/lib/other.so\0", library.display());
        let preload = CStr::from_bytes_with_nul(preload.as_bytes()).expect("a text");
        let (kept, without): (&[u8], &[u8]) = (preload.to_bytes(), b"LD_PRELOAD=/lib/other.so");
        assert_eq!(given(c"/proc/self/exe", preload), [b"A=1", kept, b"B=2"]);
        assert_eq!(given(c"/nowhere/mpirun", preload), [b"A=1", without, b"B=2"]);
        assert_eq!(given(c"/dev/null", preload), [b"A=1", kept, b"B=2"]);
        // For whoever cannot get at it: the loader says so on standard error.
        std::fs::remove_file(&library).expect("removed");
        assert_eq!(given(c"/proc/self/exe", preload), [b"A=1", without, b"B=2"]);
    }

    #[test]
    fn a_sanitizer_is_known_by_what_the_program_needs() {
        assert!(has_any(b"libc.so.6\0libasan.so.8\0", &SANITIZERS));
        assert!(!has_any(b"libc.so.6\0lib", &SANITIZERS));
    }
}
