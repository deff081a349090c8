//! The last error of CUDA that the runtime keeps for each thread.
//!
//! In: a process with the runtime, as a library or linked in. Out: the error number of each thread that has one. The
//! runtime keeps it until the program calls `cudaGetLastError`. The code of `cudaPeekAtLastError` shows its location.
//! It is read from the thread's own storage: no code is called. The driver keeps no errors, so there are none of its
//! own. Where the code has another shape, there is no result.

use crate::code::Code;
use crate::image::cuda_errors;
use crate::image::gpu::uses_cuda;
use crate::image::{Addr, MemoryExt};
use crate::limits::cuda::{CALLS_OF_A_QUESTION, RUNTIMES_ASKED};
use crate::modules::Module;
use crate::waits::circumstances::LastError;
use crate::waits::model::Party;
use crate::waits::thread::{Process, ThreadView};

/// The function of the runtime that returns the error and leaves it there.
const QUESTION: &str = "cudaPeekAtLastError";

/// Where one runtime keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The function that says where the calling thread's state lies.
    state: Addr,
    /// The number's offset in there.
    offset: u64,
}

/// The errors that threads of `process` have.
pub(super) fn of_threads(process: &Process<'_>) -> Vec<LastError> {
    let places = places(process);
    let memory = &process.context.image.memory;
    let code = Code::new(process.context.image, process.context.symbols);
    let number = |place: &Place, thread: &ThreadView<'_>| {
        let registers = thread.image.registers?;
        let state = code.own_variable(place.state, registers.thread_pointer)?;
        memory.u32(Addr(state.0.checked_add(place.offset)?)).ok()
    };
    let mut found = Vec::new();
    for thread in process.threads.iter().filter(|_| !places.is_empty()) {
        // A value that is no error number was not in the runtime's storage.
        let errors = places.iter().filter_map(|place| cuda_errors::of(number(place, thread)?));
        let party = Party::Thread(process.context.process, thread.image.tid);
        found.extend(errors.map(|error| LastError { thread: party.clone(), error }));
    }
    found
}

/// Where runtimes keep it, by the code of [`QUESTION`]. One of the functions that it calls does no more than call two
/// others. The second one returns the calling thread's state, and the third one a word of that state (the same in the
/// runtimes 11.8, 12.8 and 13.0).
fn places(process: &Process<'_>) -> Vec<Place> {
    let (image, symbols) = (process.context.image, process.context.symbols);
    let code = Code::new(image, symbols);
    // The program itself has it where that was linked in; libraries that have one of their own are many, and each is large.
    let program = image.exe.as_ref().map(|path| path.display().to_string()).filter(|_| uses_cuda(&image.mappings));
    let has_it = |module: &Module| module.name.starts_with("libcudart") || program.as_ref() == Some(&module.path);
    let modules = symbols.modules().list.iter().enumerate().filter(|(_, module)| has_it(module));
    let questions = modules.filter_map(|(module, _)| symbols.find(module, QUESTION)).take(RUNTIMES_ASKED);
    let mut places: Vec<Place> = Vec::new();
    let called = questions.flat_map(|question| code.calls_in(question.address).into_iter().take(CALLS_OF_A_QUESTION));
    for place in called.filter_map(|site| place(&code, site.target?)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The location that a function reads, if it does nothing else.
fn place(code: &Code<'_>, function: Addr) -> Option<Place> {
    let calls = code.calls_in(function);
    let [state, word] = calls.as_slice() else { return None };
    Some(Place { state: state.target?, offset: code.member_returned(word.target?)? })
}
