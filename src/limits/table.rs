//! The bounds over foreign data, one row each.
//!
//! In: nothing. Out: a constant a row, by area, and `ROWS`, the same as data: value, the reasons for the bound and for
//! its value, and the text when it is exceeded. `image/budget.rs` has the limit on a sample's whole memory, and reports
//! its own refusals. Bounds on output (rows of a table, boxes of a picture) belong to the renderers, which report the
//! total.

#[cfg(test)]
use super::Row;
#[cfg(test)]
use super::When::{Beyond, Gap, Refused, Shape, Told};

macro_rules! limits {
    ($($(#[doc = $about:literal])+ $area:ident {
        $($(#[doc = $why:literal])+ $name:ident: $type:ty = $value:expr, $when:ident $said:literal;)+
    })+) => {
        $($(#[doc = $about])+ pub(crate) mod $area {
            $($(#[doc = $why])+
            #[cfg_attr(not(feature = "py-spy"), allow(dead_code, reason = "without py-spy its own bound is for nobody"))]
            pub(crate) const $name: $type = $value;)+
        })+

        /// Every row, in the order of this file.
        #[cfg(test)]
        pub(super) const ROWS: &[Row] = &[$($(Row {
            area: stringify!($area),
            name: stringify!($name),
            value: $area::$name as i128,
            why: concat!($($why),+),
            when: $when,
            said: $said,
        }),+),+];
    };
}

limits! {
    /// The content of a snapshot.
    snapshot {
        /// Bytes of all stacks together, and the least and the most of each.
        ALL_STACKS: u64 = 4 << 20, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Bytes kept of each stack at least, however many there are: the innermost frames.
        LEAST_STACK: u64 = 4 << 10, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Bytes kept of each stack at most.
        LARGEST_STACK: u64 = 128 << 10, Told "as above";
        /// Pages kept because a register or a variable points at them.
        MOST_POINTED_AT: usize = 192, Told "as above";
        /// Frames of a stack whose registers are followed.
        FOLLOWED_FRAMES: usize = 8, Told "as above";
        /// Words of a Python frame that are followed: its locals and value stack.
        FRAME_WORDS: u64 = 40, Told "as above";
        /// Bytes kept of `_PyRuntime`, of each interpreter and of each thread state: the part that holds lists, locks and
        /// counters, by whose offsets a later version reads.
        LARGEST_RUNTIME: u64 = 4096, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Bytes of an interpreter.
        LARGEST_INTERPRETER: u64 = 8192, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Bytes of a thread state.
        LARGEST_THREAD_STATE: u64 = 512, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Bytes of a library's name in the loader's list (PATH_MAX).
        LONGEST_LIBRARY_NAME: usize = 4096, Shape "the kernel opens no longer path";
        /// Program headers of the program, from which its libraries are found: it has a dozen.
        MOST_PROGRAM_HEADERS: u64 = 64, Told "what was not kept reads as not captured, and whatever needs it becomes a gap";
        /// Libraries of the loader's list that are kept.
        MOST_LIBRARIES: usize = 2048, Told "as above";
        /// Entries of a program's dynamic section: the program has some 30.
        MOST_DYNAMIC_ENTRIES: u64 = 512, Told "as above";
        /// The most that a note unpacks to: 2,000 threads of 100 frames make some 60 MiB of text.
        LARGEST_NOTE: u64 = 256 << 20, Refused "the snapshot is refused as damaged";
        /// Looks that a snapshot keeps.
        LOOKS_KEPT: usize = 2, Beyond "two looks tell what moves from what stands still; older ones say nothing more";
        /// Parts of memory in the ELF core, whose header counts them by 16 bits.
        MOST_LOADS: usize = 60_000, Beyond "parts that stand near to each other are one, with zeros between them for gdb";
    }
    /// CPython's structures.
    python {
        /// Offsets in structures of CPython that no build has would lead reads astray.
        LARGEST_STRUCTURE: u64 = 1 << 20, Shape "the table of offsets is damaged, and another one is looked for";
        /// Frames of one thread that are searched for names and blocks.
        SEARCHED_FRAMES: usize = 2000, Gap "the frames of a deeper thread that were not searched";
        /// Frames of one thread whose objects at hand are known.
        REFERRING_FRAMES: usize = 64, Gap "that further frames were not searched, where a lock's holder is looked for so and not found";
        /// Objects at hand of all frames together: damaged tables repeat themselves.
        MOST_REFERRED: usize = 1 << 21, Gap "that the objects of further frames are not known";
        /// Threads whose frames are searched for names that distinguish locks of the same name.
        NAMING_THREADS: usize = 64, Beyond "such locks are told apart by their addresses";
        /// Frames, from the one that waits, that are searched for a name of an object.
        NAMING_FRAMES: usize = 4, Beyond "a name is a help to the reader: one from far out would name the object by a use that is none of the wait's";
        /// Items of a container that an object may be named by its key in.
        NAMING_ITEMS: u64 = 1024, Beyond "an item of a larger container has no name but its address";
        /// Items of a container whose attributes may name an object.
        NAMING_OBJECTS: usize = 64, Beyond "as above";
        /// Bytes of a key that is part of a name.
        LONGEST_KEY: usize = 40, Beyond "a longer key tells nothing at a glance, and the address stands instead";
        /// Generators that are being run inside handlers of exceptions, one inside the other.
        MOST_HANDLERS: usize = 64, Gap "that the exception which the thread handles is not known";
        /// Entries of a dictionary that are read at most: 4 MiB of them.
        MOST_DICT_ENTRIES: u64 = 1 << 17, Gap "that the dictionary was not read";
        /// Objects that are followed from the frames of a thread: a helper's loop reaches some hundred, one that logs some
        /// thousand.
        MOST_REACHED: usize = 20_000, Told "the thread counts as one that can reach anything, and the report says so";
        /// Items of a container that are followed then.
        MOST_CONTAINED: u64 = 4096, Told "as above";
        /// Bytes of an interpreter behind its field for `sys.modules` that are searched for hooks: audit hooks, codecs.
        HOOKS_IN_INTERPRETER: u64 = 1 << 10, Beyond "in every known version they stand within, or where a table says";
        /// Bytes of a thread state that are searched for references.
        LARGEST_STATE: u64 = 1 << 12, Beyond "the structure of every known version is smaller";
        /// Bytes between the bounds of a greenlet's stack.
        LARGEST_STACK: u64 = 1 << 30, Beyond "no stack is larger";
        /// Room in the ring of a `SimpleQueue`.
        LARGEST_RING: u64 = 1 << 24, Told "what is in that queue counts as unknown";
        /// Greenlets of one process.
        MOST_GREENLETS: usize = 1 << 14, Gap "that further ones were not looked at";
        /// Objects tracked by the collector that are checked for calls when they die.
        MOST_TRACKED: usize = 1 << 18, Told "every thread that goes on counts as one that may free something which can reach anything";
        /// Objects kept by suspended tasks that are known not to be garbage.
        KEPT_BY_TASKS: usize = 1 << 12, Beyond "generators behind managers of contextlib lie a few steps away; others count as garbage";
        /// Classes that a class inherits from.
        MOST_BASES: u64 = 256, Beyond "classes of real programs have a dozen";
        /// Classes, each the class of the one before, that are followed to `type`.
        MOST_METACLASSES: usize = 8, Beyond "a metaclass is of type, or of one that is";
        /// Weak references to one object whose callbacks are checked.
        MOST_WEAK: usize = 64, Beyond "an object has one or two, and a callback at most";
        /// Bytes of an instance of a type of C that are searched for references.
        LARGEST_INSTANCE: u64 = 1024, Beyond "types of C that hold references are a few dozen words";
        /// Bytes of the interpreter's variables that are searched for its table of signal handlers.
        SEARCHED_VARIABLES: u64 = 4 << 20, Told "every handler of the process counts as one that could wake";
        /// Characters of a type's name at most.
        LONGEST_TYPE_NAME: usize = 256, Beyond "names that decide are shorter; a longer one reads as no name";
        /// More variables or slots than any function has.
        MOST_SLOTS: u64 = 4096, Shape "the frame is none";
        /// Instructions of a loop around a wait that are executed to see whether it ever ends: those around a call are some dozens.
        MOST_STEPS_OF_A_LOOP: usize = 2048, Beyond "a longer loop counts as one that ends by itself";
        /// Functions of a loop around a wait, each called by the one before.
        MOST_FUNCTIONS_OF_A_LOOP: usize = 16, Beyond "a loop with more counts as one that ends by itself";
        /// Elements of a container that a loop around a wait goes through.
        MOST_ELEMENTS_OF_A_LOOP: u64 = 256, Beyond "a loop over more counts as one that ends by itself";
        /// Blocks of one frame (CO_MAXBLOCKS).
        MOST_BLOCKS: u32 = 20, Shape "CPython refuses to compile more";
        /// The longest name or path that is read, in characters.
        LONGEST_TEXT: u64 = 4096, Beyond "PATH_MAX: what is longer is shown cut, and no name that decides is as long";
        /// The largest line table that is read, in bytes.
        LARGEST_LINE_TABLE: u64 = 4 << 20, Refused "the frame has no line";
        /// More interpreters than any program starts.
        MOST_INTERPRETERS: usize = 1024, Gap "that further interpreters were not walked";
        /// More threads than a kernel allows by default.
        MOST_THREADS: usize = 100_000, Gap "that further thread states were not walked";
        /// More frames than any recursion limit in use.
        MOST_FRAMES: usize = 100_000, Told "`it has more than .. frames` at the thread";
        /// Bytes that the frames of all threads may take together: damaged lists share their frames a thousand times
        /// over.
        MEMORY_OF_FRAMES: usize = 256 << 20, Told "`it has more than .. frames` at the thread";
        /// The least cost of each, for a million at most. A shim or an anchor, which becomes no frame, is work, too.
        COST_OF_A_FRAME: usize = 256, Told "`it has more than .. frames` at the thread";
    }
    /// Symbols and debug information.
    symbols {
        /// libtorch has 4,000 units, Chromium 40,000; parsing takes up to 1 KiB for each.
        MOST_UNITS: usize = 1 << 17, Told "that the file's source lines are out of all proportion";
        /// The largest unit, in bytes: those of whole programs that were optimised as one have some 60 MiB.
        LARGEST_UNIT: u64 = 128 << 20, Told "that the file's source lines are out of all proportion";
        /// The largest line program, in bytes: a byte can make a row of 24.
        LARGEST_LINE_PROGRAM: u64 = 12 << 20, Told "as above";
        /// Ranges of addresses of all units of a file together: Chromium has a million, and each takes 40 bytes.
        MOST_RANGES: usize = 4_000_000, Told "that the file's units share their ranges out of all proportion";
        /// Symbols before an address that are checked whether they cover it: symbols nest (a hot part inside a whole).
        NESTED_SYMBOLS: usize = 256, Beyond "the function has no name, as one without a symbol";
        /// Inlining deeper than this is not followed.
        DEEPEST_INLINING: usize = 64, Gap "that further inlined functions of a place are not shown";
        /// Symbols of one file are refused above this number.
        MOST_SYMBOLS: usize = 8_000_000, Gap "that further symbols of the file were not read";
        /// .gnu_debugdata is not unpacked above this size.
        LARGEST_DEBUGDATA: usize = 64 << 20, Gap "that the file's .gnu_debugdata was not unpacked";
        /// Names longer than this are none: the longest that libtorch_cuda 2.15 exports has 1,995 bytes.
        LONGEST_SYMBOL: usize = 1 << 16, Beyond "the function has no name, as one without a symbol";
        /// A name of more than this is a template of templates that nobody can read.
        LONGEST_MANGLED: usize = 4096, Beyond "the name is shown as it stands in the file";
        /// A readable name that grows beyond this is not made: parts of a name can name each other.
        LONGEST_READABLE: usize = 32 << 10, Beyond "the name is shown as it stands in the file";
        /// Entries of a unit that are passed on the way to a function: units of 10 MiB have 300,000.
        MOST_ENTRIES: usize = 1_000_000, Beyond "a lock has no variable's name, and where it was taken is told by code alone";
        /// References from an entry to the one that has its name or type: to its abstract origin, and from there to its declaration.
        MOST_ORIGINS: usize = 4, Beyond "as above";
        /// Variables of a function that are guards or have locks in them.
        MOST_VARIABLES: usize = 256, Beyond "as above";
        /// Members of a class that are checked whether they are locks, and the depth of their nesting.
        MOST_MEMBERS: usize = 512, Beyond "as above";
        /// Classes in classes.
        DEEPEST_MEMBERS: usize = 4, Beyond "as above";
        /// Entries that are read of the types between a function's variables and locks in the heap.
        PATH_ENTRIES: usize = 20_000, Beyond "a lock in the heap is called by its address";
        /// Paths to locks from the variables of one function.
        MOST_PATHS: usize = 512, Beyond "as above";
        /// Pointers on the way from a variable to a lock.
        PATH_POINTERS: usize = 4, Beyond "as above";
        /// Classes in classes on the way between two pointers: the pointer of a `unique_ptr` is the sixth.
        DEEPEST_PATH: usize = 20, Beyond "as above";
    }
    /// Stacks.
    unwind {
        /// The largest frame that a frame pointer may span, in bytes.
        LARGEST_FRAME: u64 = 1 << 20, Told "the caller is found by other means, and the frame's trust says so";
        /// The most entries that are indexed: libtorch has about 300,000.
        MOST_ENTRIES: usize = 4_000_000, Gap "that further functions of the file are unwound without CFI";
        /// The most steps of one DWARF expression: those in CFI have a handful.
        MOST_EVALUATIONS: usize = 256, Told "the frame's caller is found by other means, and its trust says so";
        /// The most frames of one stack. 5,000 Python calls make some 15,000 native frames up to CPython 3.10.
        MOST_FRAMES: usize = 32_768, Told "the end of the stack says that its limit was reached, which is a gap";
        /// Bytes that a frame takes in all stages of a look. Half of the budget of a look is for frames.
        COST_OF_A_FRAME: u64 = 1 << 10, Told "the end of the stack says that its limit was reached, which is a gap";
        /// Each stack has at least this number of frames, however many threads there are.
        LEAST_FRAMES: usize = 256, Told "as above";
        /// Words above the stack pointer that are searched.
        SCANNED_WORDS: u64 = 128, Told "the end of the stack says that no caller was found, which is a gap";
        /// Program and section headers are refused above this number: no real file comes near.
        MOST_HEADERS: usize = 65_536, Gap "that the file was not read as a module";
        /// Bytes of the vDSO: it has two to four pages.
        LARGEST_VDSO: u64 = 64 << 10, Beyond "its headers lie at its beginning";
        /// The largest module that is pieced together from memory, where its file cannot be opened.
        LARGEST_FROM_MEMORY: u64 = 64 << 20, Gap "that the module was not pieced together from memory";
    }
    /// Machine code that is read.
    code {
        /// The most code of one function that is read, in bytes. Functions that people write stay far below. The
        /// dispatch loops of interpreters are far larger and are left alone.
        LARGEST_FUNCTION: u64 = 16 << 10, Told "who took a lock in such a function is not found so: the gap on the lock's owner says that no thread's code shows it";
        /// Bytes of a structure from which a function returns a member.
        LARGEST_STRUCTURE: u64 = 16 << 10, Shape "what a thread keeps of its own is smaller";
        /// Bytes of a result through a pointer, in which a guard of a lock may lie.
        LARGEST_RESULT: u64 = 256, Shape "results that hold a guard of a lock are smaller";
        /// Bytes of a function that has returned, which is read for the locks that it took and kept: such functions are
        /// short.
        FIRST_BYTES: usize = 1024, Told "who took a lock in such a function is not found so: the gap on the lock's owner says that no thread's code shows it";
        /// Instructions of all paths through a function that are followed for one question.
        STEPS_OF_PATHS: usize = 8192, Told "a lock that such a function took is at most one of several candidates";
        /// Functions of a process that are read for the locks which they take or give back for their callers.
        CALLED_FUNCTIONS: usize = 4096, Told "a lock is taken to be given back in what was not read: its holder is a candidate";
        /// Bytes of a module's code in which calls are looked for without reading its functions.
        LARGEST_TEXT: u64 = 16 << 20, Beyond "the functions are read, as many as CALLED_FUNCTIONS says";
        /// Functions that lead to the calls in question.
        MOST_CALLERS: usize = 4096, Beyond "as above";
        /// How deep such functions call each other: a guard's destructor calls its lock's, and that the C library.
        CALLED_DEPTH: usize = 6, Told "as above";
        /// Functions that one after the other pass a parameter on.
        PASSED_ON_FRAMES: usize = 8, Told "the parameter is unknown, and whoever asked for it says what it could not tell";
    }
    /// Files and calls of the target.
    image {
        /// Processes of one look, beyond which no descendant is taken in unasked: the largest pools have fewer workers.
        MOST_FOLLOWED: usize = 512, Gap "that further processes which are waited for were not looked at";
        /// Processes of one look, beyond which no descendant is taken in that merely sleeps: servers have a worker or two for each
        /// processor.
        MOST_OFFSPRING: usize = 128, Told "the first line counts the child processes that were not looked at";
        /// As many links as the kernel follows (path_resolution(7)).
        MOST_LINKS: usize = 40, Refused "the file cannot be opened (ELOOP), as for the target itself";
        /// Names in a path, with those of links.
        MOST_NAMES: usize = 1024, Refused "the file cannot be opened (ENAMETOOLONG)";
        /// Bytes of a source file that is read for some of its lines: larger ones are made by programs, not for people.
        LARGEST_SOURCE: u64 = 8 << 20, Refused "the report shows the numbers of the lines without their text";
        /// Characters of a line of source.
        LONGEST_SOURCE_LINE: usize = 200, Beyond "a longer line is shown cut: terminals are narrower";
        /// Lines of source that a report shows.
        MOST_SOURCE_LINES: usize = 64, Told "further lines are shown by their numbers, without their text";
        /// More than the kernel takes for arguments and environment by default.
        LARGEST_ENVIRONMENT: u64 = 4 << 20, Gap "that the rest of the environment was not read";
        /// More descriptors in one call are not read one by one.
        MOST_WANTED: usize = 256, Gap "that who may end a wait for more descriptors was not looked at";
        /// Epoll sets that are members of each other: the kernel allows no more (EP_MAX_NESTS in fs/eventpoll.c).
        NESTED_SETS: usize = 5, Shape "the kernel nests no deeper";
        /// SEMOPM, what the kernel allows by default is 500.
        MOST_OPERATIONS: u64 = 500, Shape "the kernel refuses such a call (SEMOPM)";
        /// Descriptors in a set of select(2).
        FD_SETSIZE: i32 = 1024, Shape "such a call writes beyond its own set (select(2)): no C library makes it";
    }
    /// Digests of jobs, and their reports.
    job {
        /// Bytes of a file that is merged: 100,000 ranks have 200 MB.
        LARGEST_DIGEST: u64 = 1 << 30, Refused "the file is refused with its size";
        /// Bytes of a request for looks, which names those of the first round: 40 bytes for each of 1,000,000.
        LARGEST_REQUEST: u64 = 64 << 20, Refused "the file is no request: a rank that is asked by it is told as missing";
        /// Looks of the first round that one of the second names one by one.
        MOST_NAMED: usize = 64, Told "it names a set of them, which the digests have once";
        /// Files in a folder that is merged.
        MOST_FILES: usize = 1 << 17, Gap "that the folder has more files";
        /// Files that could not be taken in and are named one by one.
        MOST_FILES_TOLD: usize = 64, Told "a gap says how many more there are";
        /// Processes of a machine whose rank is read.
        MOST_PROCESSES: usize = 1 << 17, Gap "that further processes were not asked";
        /// Ranks of a job; what says it has more is wrong.
        LARGEST_JOB: u32 = 1 << 24, Told "how many ranks there are is not known then, and no rank is missing";
        /// The largest number of a rank that is believed.
        LARGEST_RANK: u32 = 1 << 24, Shape "no job has as many: the variable is not a launcher's";
        /// Processes that work for a rank, as a DataLoader's workers do, and that are kept of those it waits for.
        MOST_HELPERS: usize = 8, Beyond "any one of them holds up the rank: further ones are not named";
        /// Ranks of one report, times its processes, waits and holds, with which each is compared: 8,000 ranks of one machine.
        MOST_COMPARED: usize = 1 << 26, Told "a gap says that further ranks of the machine were not taken in";
        /// Waits for other processes that are kept of a rank.
        MOST_WAITS: usize = 16, Told "a thread beyond these is counted among the other threads, which keep a cycle from being proven";
        /// Ranks that one wait names: those of an operation are a few, and any one that is left makes the verdict.
        MOST_PEERS: usize = 64, Beyond "each of them is enough for a cycle, and who is in none is found by the others";
        /// Tasks that are taken from one list of Ray's.
        MOST_TASKS: usize = 100_000, Gap "that further tasks in the list were not looked at";
        /// Nodes, pods and jobs that are taken from one account of Slurm's or Kubernetes', in thousands of lines.
        MOST_PLACES: usize = 100_000, Gap "that further ones were not looked at";
        /// Letters of the name of a node or pod (RFC 1035, 1123: 253).
        LONGEST_NODE_NAME: usize = 253, Shape "no resolver takes a longer name";
        /// Letters of a pod's name that Kubernetes takes for the name of its host (RFC 1123).
        LONGEST_HOST_NAME: usize = 63, Shape "the host has no longer name";
        /// Numbers in brackets in one name of a list of nodes: a rack's, a shelf's, a node's.
        MOST_BRACKETS: usize = 4, Shape "Slurm takes three at most";
        /// Tasks without a thread that are kept of a worker.
        MOST_READY: usize = 64, Told "how many more there are is said";
        /// Tasks that wait for others, of a scheduler, and threads that one wait leads to.
        MOST_WAITING: usize = 256, Beyond "each of them is enough for a chain, and further ones lead through others";
        /// Tasks from one that is waited for to the one that runs.
        MOST_STEPS: usize = 64, Beyond "a chain so long is told up to there";
        /// Connections that are kept for a rank: with more than these it has a mesh, and numbers of ranks are better
        /// evidence.
        MOST_CONNECTIONS_KEPT: usize = 16, Beyond "waits for a connection lead nowhere then, and ranks are joined by their numbers";
        /// Groups of a rank whose last operation is kept.
        MOST_GROUPS_KEPT: usize = 8, Beyond "what a rank waits for is told by its wait; of further groups it is not said what it has not enqueued";
        /// Letters of a finding's message.
        LONGEST_MESSAGE: usize = 600, Told "the message ends with dots";
        /// Operations that are compared: a job that hangs is in a few.
        MOST_GATHERINGS: usize = 64, Told "a gap says that there are more";
        /// Ranks that are reported one by one; all of them stand in the groups.
        MOST_RANKS_TOLD: usize = 64, Told "the groups of ranks have them all";
        /// Values that a file of PyTorch's stands for: its recorder keeps 2,000 operations, with some 100 values each.
        MOST_WITNESS_VALUES: usize = 4_000_000, Refused "the file is a gap that says so";
        /// How deep they nest: a frame of an entry of a list is at five.
        DEEPEST_WITNESS: usize = 32, Refused "the file is a gap that says so";
        /// Things that one sentence names.
        MOST_SAID: usize = 6, Told "the sentence says how many more there are";
    }
    /// Objects of MPI libraries.
    mpi {
        /// Words of a stack that are tried for a request: the innermost frames have some hundreds that point to the heap.
        MOST_CANDIDATES: usize = 4096, Told "whom the thread waits for is not said then: the wait is told by its call alone";
        /// Requests of one call of MPI_Waitall that are read.
        MOST_REQUESTS: usize = 4096, Told "whom it waits for beyond these is not said: the wait is told by its call and the others";
        /// Frames between the program's call and the innermost function that has a name of MPI's.
        MOST_INNER: usize = 8, Told "whom the thread waits for is not said then: the wait is told by its call alone";
        /// Letters of the name of a class of Open MPI.
        LONGEST_CLASS_NAME: usize = 64, Shape "no class has a longer name";
        /// Letters of the name of a communicator (MPI_MAX_OBJECT_NAME).
        LONGEST_GROUP_NAME: usize = 64, Shape "no communicator has a longer name";
        /// Classes that one is made from.
        MOST_PARENTS: usize = 8, Shape "requests have five";
        /// Bytes of an object of Open MPI: requests have below 1,000, communicators below 2,000.
        LARGEST_OBJECT: u64 = 4096, Shape "no request or communicator is as large";
    }
    /// PyTorch's c10d and gloo.
    c10d {
        /// Words of a stack that are tried for an operation: the frames of gloo's have some hundreds that point to the heap.
        MOST_CANDIDATES: usize = 4096, Told "the thread's wait is told as that for a condition then";
        /// Words of an object that are searched for the next landmark: the largest of these objects has 60.
        WORDS_OF_OBJECT: u64 = 80, Shape "none of these objects is as large";
        /// Operations and messages that a group expects at once: a job that hangs has a few.
        MOST_EXPECTED: u64 = 256, Beyond "each rank that is named is enough for a link, and who is in none is found by the others";
        /// Ranks of a group.
        LARGEST_GROUP: u32 = 1 << 24, Shape "no job has as many";
        /// Numbers of operations.
        LARGEST_NUMBER: u64 = 1 << 48, Shape "no job has come so far";
        /// Letters of a key, a name or a description.
        LONGEST_KEY: u64 = 256, Shape "keys that PyTorch makes have fewer than 200; a longer one is told as a key without its name";
        /// Keys that one call waits for: those of a barrier are one, of an exchange as many as ranks.
        MOST_KEYS: u64 = 1 << 16, Shape "a call for more keys than a job has ranks";
        /// Entries that a recorder may have (TORCH_FR_BUFFER_SIZE, by default 2,000).
        MOST_ENTRIES: u64 = 1 << 24, Shape "no recorder has as many";
        /// The last entries that are read.
        MOST_RECORDED: u64 = 512, Beyond "the last operation of a group that is in use is among them";
        /// Bytes of an entry: 512 in 2.15.
        LARGEST_ENTRY: u64 = 2048, Shape "no entry is as large";
        /// Groups of a rank whose last operation is reported.
        MOST_GROUPS: usize = 64, Beyond "what a rank waits for is told by its wait";
        /// Groups in the recorder's map.
        MOST_MAPPED: u64 = 4096, Shape "no job has as many groups";
    }
    /// Core files.
    core {
        /// Segments of a core. The kernel allows a process 65,530 mappings by default; this is the greatest sensible
        /// setting.
        MOST_SEGMENTS: u64 = 1 << 20, Refused "the core is refused as damaged";
        /// Notes of a process, all together: 3,000 threads make some 10 MiB, those of a snapshot are as large as itself.
        LARGEST_NOTES: u64 = 256 << 20, Told "a gap says that the core's notes were read in part";
        /// A thread has eight, a snapshot few more than its threads.
        MOST_NOTES: usize = 1 << 20, Told "a gap says that the core's notes were read in part";
        /// The most bytes that are unpacked in memory; a larger one needs unpacking on disk.
        LARGEST_UNPACKED: u64 = 512 << 20, Refused "an error says how to unpack it on disk first";
        /// Mapped files are refused above this number: the kernel cuts the note at 4 MiB by default.
        MOST_FILES: u64 = 1 << 20, Refused "the note has no room for as many: it is damaged, and the files that it does have room for are taken";
    }
    /// Running processes.
    live {
        /// Bytes of one file of a network file system, or of one of a program, that is copied before it is read: libraries of C and
        /// CPython have some 10 MiB.
        LARGEST_COPY: u64 = 64 << 20, Beyond "the file is mapped instead, after its file system has answered, and an error ends a look for which it stalls";
        /// The same of all files of a process together.
        LARGEST_COPIES: u64 = 256 << 20, Beyond "further files are mapped instead, after their file system has answered";
        /// Structures of the kernel that stand in one another, each as a member of the next.
        DEEPEST_TYPE: usize = 32, Told "the eBPF program is refused, and sleeping threads are read by /proc";
        /// Threads that are taken of one pass of the kernel over them, so that no kernel can make it endless.
        MOST_RECORDS: usize = 4 << 20, Shape "there are no more thread ids";
        /// How often the threads are listed again to find new ones.
        MOST_STOP_ROUNDS: usize = 16, Told "threads that did not come to a stop have no registers, which is a gap";
        /// How often lockscope retries threads that did not come to their stop in time, with twice the time at each
        /// retry.
        MOST_ROUNDS: u32 = 6, Told "threads that did not come to a stop have no registers, which is a gap";
        /// How often the copying is repeated in one stop because threads that were left asleep woke.
        MOST_TURNS: u32 = 6, Told "threads that woke to the last have no registers, which is a gap, unless they come to a stop when all are asked again";
        /// More than the answer for the largest machine.
        LONGEST_ANSWER: usize = 1 << 20, Told "the GPUs' use is a gap that says that nvidia-smi did not end";
        /// Bytes of an answer of NCCL's RAS: that of 10,000 ranks has some million.
        LONGEST_RAS_ANSWER: usize = 64 << 20, Told "what it knows of the job is a gap that says so";
        /// Network namespaces with a job in them among the processes of one look.
        MOST_RAS_LISTENERS: usize = 16, Gap "what NCCL's RAS knows of further jobs";
        /// Messages of the kernel's log: its buffer has some thousand.
        MOST_MESSAGES: usize = 1 << 18, Beyond "the log has no more, unless it is written while it is read";
        /// Bytes of one: the kernel writes no longer ones (kernel/printk/printk.c, CONSOLE_EXT_LOG_MAX).
        LONGEST_MESSAGE: usize = 8192, Beyond "the kernel writes no longer ones";
        /// GPUs of a machine.
        MOST_GPUS: usize = 1024, Beyond "no machine has as many";
        /// The kernel's `sched` file is long and slow; with more threads than this it is not read.
        MOST_SCHED_FILES: usize = 64, Told "the report has no `since_ms` for these waits";
        /// Threads of a process's parent whose names are read: any of them may be the owner of a lock that fork copied.
        PARENT_THREADS: usize = 4096, Gap "that the parent has further threads, which may be a lock's owner";
        /// Threads of a process that maps the memory in which a thread waits: any of them may be the owner of a lock
        /// there.
        SHARING_THREADS: usize = 32_768, Gap "that the process has further threads, which may be a lock's owner; no owner is called gone";
        /// More bytes of answers than any machine gives.
        MOST_ANSWERS: usize = 64 << 20, Gap "that further sockets of the network namespace are not known";
        /// More descriptors than the kernel allows by default.
        MOST_DESCRIPTORS: usize = 1 << 20, Gap "that further descriptors of the process are not known";
        /// Sockets that are checked for descriptors in flight: a machine full of services has some thousand.
        MOST_SOCKETS_ASKED: usize = 8192, Told "that such descriptors may be on their way counts as a hope then";
        /// Programs between a rank and its launcher: each is a wrapper script.
        MOST_ANCESTORS: usize = 16, Beyond "the rank counts as its own, and the launcher is not known";
        /// TCP connections of a process that are reported: a rank has one to each other rank of each of its groups.
        MOST_CONNECTIONS: usize = 4096, Gap "that the process has further connections";
        /// Addresses of a network namespace: a node has a few.
        MOST_ADDRESSES: usize = 64, Beyond "they only tell where a node can be reached";
        /// So many places are waited for; after that none is.
        MOST_PLACES: usize = 8, Told "the places that did not answer are gaps; pages of others are not waited for, and what needs them becomes a gap";
        /// Small mappings of one size that are read together.
        MOST_ALIKE: usize = 1024, Told "further ones are read when they are asked for";
        /// The same, for those that are read ahead.
        MOST_EXPECTED: usize = 1 << 14, Told "further ones are read when they are asked for";
        /// Most pages that may fault in one order, so that a strange map cannot make it endless.
        MOST_FAULTS: u32 = 4096, Told "what was not copied is read later or is a gap";
        /// Most bytes of each stack, with few threads and with many.
        STACK_OF_FEW: u64 = 256 << 10, Told "the rest of a stack is read later, which costs another look";
        /// Bytes of each stack that are copied under the stop, with many threads.
        STACK_OF_MANY: u64 = 64 << 10, Told "the rest of a stack is read later, which costs another look";
        /// The kernel takes 128 KiB for one argument; beyond this much, no reader reads the rest.
        LONGEST_COMMAND_LINE: u64 = 128 << 10, Told "the command line is marked as cut";
        /// Arguments of a command line: nobody reads more.
        MOST_ARGUMENTS: usize = 4096, Told "the command line is marked as cut";
    }
    /// Names of threads.
    threads {
        /// Bytes of the name of a thread (TASK_COMM_LEN, less the 0).
        LONGEST_NAME: usize = 15, Shape "the kernel keeps no longer name";
        /// Frames of a stack that are read, from the outermost on: threads name themselves when they begin.
        NAMING_FRAMES: usize = 24, Beyond "what begins a thread stands at its outer end";
    }
    /// Looks.
    analysis {
        /// The innermost frames, in which a thread that spins is here and there (driver 580.159.04: up to four, and two of
        /// clock_gettime).
        MOVING_FRAMES: usize = 4, Beyond "further out a thread that spins stands still";
        /// Frames inside the call of a thread that spins, which must be the same in each sample.
        INNER_FRAMES: usize = 2, Beyond "what goes on further in while a thread spins says nothing of what it waits for";
        /// How often those are taken in whom the target waits for: so deep a chain of processes is followed.
        MOST_FOLLOWINGS: usize = 16, Told "a process further down the chain is named where it is waited for, as one that was not captured";
        /// How often the target is stopped at most. Two looks settle a real hang; a third and fourth are for one in which a
        /// bystander moved the pages that were wanted.
        MOST_LOOKS: u32 = 4, Told "a cycle that did not come to be confirmed is a suspicion, and the verdict says so";
        /// How often the target is stopped once more since structures of a running interpreter were changed as they were read: the
        /// threads of nearly all programs sleep most of the time.
        MOST_RETAKEN: usize = 8, Told "a ring of tasks that the last of them showed as one that can end is `blocked`";
        /// Words of memory shown of a lock: the largest of glibc, a read-write lock, has 14.
        LOCK_WORDS: u64 = 16, Beyond "shown for people beside what was decoded; the largest lock has fewer";
        /// Innermost frames whose registers are reported: the frame that waits is among them. The registers of all
        /// frames of thousands of threads would fill the memory.
        FRAMES_WITH_REGISTERS: usize = 12, Beyond "shown for people; what waits is among them";
        /// Threads beyond this depth make py-spy give up on the whole process (4,096 frames, seen with 0.4.3).
        DEEPEST_FOR_PYSPY: usize = 4096, Told "a gap says that py-spy was not asked and why";
    }
    /// Watched commands.
    run {
        /// How often another process is started to look after one was lost: what makes it die does so again.
        MOST_LOOKERS: u32 = 4, Refused "the look is an error that says so";
        /// Most processes that are followed: the first of a larger tree.
        MOST_PROCESSES: usize = 2048, Gap "that the tree has further processes, which were neither followed nor looked at";
        /// Spinning threads that the kernel counts for, to see that they do not leave their call; a descriptor each.
        MOST_SPINNERS: usize = 64, Beyond "the time that further ones use is progress";
        /// Bytes that are copied of each of the host's allocations that a GPU sees, before a core of it is written.
        COPIED_OF_A_MAPPING: u64 = 256 << 10, Told "a word behind it is not told";
        /// The same of all of a process.
        COPIED_IN_ALL: u64 = 32 << 20, Told "a word behind it is not told";
        /// Descriptors of a process, or files of a folder, that are searched for the FIFO and the core of a GPU's
        /// driver.
        MOST_ENTRIES: usize = 65_536, Told "a gap says that there is no FIFO, or that the core was not written";
        /// Cores of GPUs that are read for errors once a command has ended.
        MOST_CORES: usize = 16, Beyond "errors of further processes are those of the first";
        /// Longest line of a runner; what is longer is passed over.
        LONGEST_LINE: usize = 64 << 10, Told "the line is passed over, as one of another program";
        /// Bytes of a runner's lines that are read during a sample: those of some 10,000 tests.
        MOST_READ_LATER: usize = 1 << 20, Beyond "the rest stays in the pipe and is read after the look";
        /// Most results that are kept: a file with more is shown by no CI system.
        MOST_RESULTS: usize = 200_000, Beyond "a file with more is shown by no CI system; who waits for whom does not depend on it";
        /// Longest request and longest answer, in bytes: those of 10,000 threads take 40 MB.
        LONGEST_ANSWER: u64 = 1 << 30, Refused "the look is an error that says so";
    }
    /// The table of the recorder.
    recorder {
        /// Bytes of the library's writable data: it has some hundred.
        LARGEST_DATA: u64 = 64 << 10, Shape "this is another library of the same name";
        /// Threads at a time: it has room for no more.
        MOST_ROWS: u64 = 4096, Gap "the threads that were not read";
        /// Locks of one thread: it has room for no more.
        MOST_HELD: u64 = 64, Shape "the table has no more, and counts itself what found no room";
        /// Entries of the table of generations: it has 2^20.
        MOST_GENERATIONS: u64 = 1 << 24, Shape "this is no such table";
        /// Bytes of the frames that took a lock: the recorder writes no longer text.
        LONGEST_TEXT: u64 = 1024, Shape "the recorder writes no longer one";
        /// Bytes that the table has for the name of a function of CUDA's driver: it has 64.
        LONGEST_FUNCTION: u64 = 256, Shape "this is no such table";
        /// Functions of CUDA's driver: it has room for 1024.
        MOST_FUNCTIONS: u64 = 1 << 16, Shape "this is no such table";
        /// Records of one process: its file has room for about this many.
        MOST_RECORDS: usize = 2 << 20, Gap "the records that were not read";
        /// Ways in which two locks were taken one after the other.
        MOST_ALIKE: usize = 1024, Told "a gap says how many further ways were not compared";
        /// Threads that took two locks at the same call sites: each is compared with all others.
        MOST_THREADS: usize = 8, Beyond "those that do the same say the same";
        /// Locks of a ring, each held by its own thread.
        MOST_RING: usize = 8, Beyond "rings of two and three are the ones that are met in programs";
        /// Combinations that are compared, in one process: some seconds.
        MOST_STEPS: usize = 4_000_000, Gap "further combinations were not compared";
        /// Orders of one process that could deadlock; those at the same lines are reported as one.
        MOST_INVERSIONS: usize = 10_000, Gap "further ones were not told";
        /// Pairs of a wait and a wake-up that are tried: a command has room for no more predictions.
        MOST_WAKE_UPS: usize = 32, Beyond "most wake-ups are guarded well";
    }
    /// The hangs that another run could have.
    forecast {
        /// Places at which locks are taken in orders that could deadlock.
        MOST_TOLD: usize = 200, Gap "further places";
        /// Files of recorded processes that are read together.
        MOST_FILES: usize = 20_000, Gap "the files that were not read";
        /// Modules of recorded processes that are checked for locks of their own.
        MOST_MODULES: usize = 4096, Gap "the modules that were not looked at";
        /// Bytes of one module's constants that are searched: those of PyTorch's libraries are some ten million.
        LARGEST_SEARCHED: usize = 256 << 20, Gap "the constants that were not searched";
    }
    /// Predicted deadlocks that are to happen.
    provoke {
        /// Symbols of a file among which a function is looked for.
        MOST_SYMBOLS: usize = 1 << 22, Refused "the prediction is told with the reason that there is no such function";
        /// Addresses of a function whose lines are looked up.
        LARGEST_FUNCTION: u64 = 1 << 18, Beyond "a line beyond is taken for the function as a whole";
        /// Bytes of a source file in which a line that has moved is looked for.
        LARGEST_SOURCE: u64 = 16 << 20, Beyond "the line is taken to be where it was";
        /// Bytes of a file of orders.
        LARGEST_FILE: u64 = 1 << 20, Refused "an error says that it is too large";
        /// Letters of a file's version that an error repeats.
        LONGEST_VERSION: usize = 20, Beyond "the error says that the version is another one";
        /// Predictions whose reasons are reported one by one.
        MOST_TOLD: usize = 10, Told "a line says how many more there are";
        /// Predictions that a command is run with at a time.
        MOST_PREDICTIONS: usize = 32, Told "a line says how many more were not tried";
    }
    /// The holders of locks, by rules of several families.
    holders {
        /// The most frames that are read, from the innermost on. A call that took a lock for longer is seldom further
        /// out, and an interpreter's recursion would cost more than all the rest.
        CODE_FRAMES: usize = 64, Told "the gap on the lock's owner says of how many threads only so many frames were read";
        /// The same for calls that are common: to read an interpreter's functions costs more than all the rest (measured:
        /// 20 ms).
        NEAR_FRAMES: usize = 8, Beyond "calls that are used for other things as well say too little further out";
        /// Bytes of stack from the loop of a pool's worker outwards, whose words may lead to the pool's queue.
        LOOP_BYTES: u64 = 4096, Shape "a worker's loop has a few hundred bytes, and is one of the outermost frames of its thread";
        /// Blocks of the heap that are read to find what a pool's queue leads to (measured: 26 in XLA, 250 in Arrow).
        QUEUE_BLOCKS: usize = 4096, Beyond "the worker is then not said to wait for work of its own queue";
        /// Bytes of these blocks (measured: 140 kB in XLA).
        QUEUE_BYTES: u64 = 4 << 20, Beyond "as above";
        /// Generations of parents that are searched for an owner that fork left behind.
        GENERATIONS: usize = 16, Beyond "a holder further up is found by the addresses that all descendants share";
        /// The kernel gives no task a greater id.
        GREATEST_ID: i32 = 1 << 22, Shape "no task has such an id (PID_MAX_LIMIT)";
        /// Holds whose taking call sites are searched: the text for people names ten.
        TAKEN_LOOKED_FOR: usize = 256, Beyond "such a hold has the line where its thread is now";
        /// Words of a guard that are read: one or two are the address of its lock.
        GUARD_WORDS: u64 = 4, Beyond "as above";
        /// Words of a thread's stack that may be the guard of one lock: a guard has a copy or two.
        GUARDS_LOOKED_AT: usize = 64, Beyond "such a thread stays a candidate";
    }
    /// Stacks that are searched for locks.
    waits {
        /// Threads whose variables are searched for a way to a lock in the heap, and frames of each, outermost first.
        PATH_THREADS: usize = 8, Beyond "a lock in the heap is called by its address";
        /// Frames of a thread.
        PATH_FRAMES: usize = 16, Beyond "as above";
        /// Words of memory that such a search reads.
        PATH_READS: usize = 20_000, Beyond "as above";
        /// Elements of one container.
        MOST_ELEMENTS: u64 = 1024, Beyond "as above";
        /// Most bytes of one stack that are searched for a lock's address: stacks have 8 MiB by default, and those of a
        /// hang are small (measured: 2 KiB to 40 KiB).
        SEARCHED_STACK: u64 = 1 << 20, Told "the gap on a lock's candidates says how many stacks were searched in part";
        /// Most bytes of one frame: a greater one is an array, or the unwinding went astray.
        SEARCHED_FRAME: u64 = 256 << 10, Told "the gap on a lock's candidates says how many stacks were searched in part";
        /// Most frames of one stack that are searched: a deeper recursion has its locks near either end.
        SEARCHED_FRAMES: usize = 512, Told "as above";
        /// Bytes above the stack pointer that are searched where no frames are known.
        TOP_OF_STACK: u64 = 1024, Told "a gap says why the thread has no frames";
        /// Threads that can go on and are checked one by one whether they can reach an awaited object: their reach has
        /// to be walked.
        MOST_ASKED: usize = 16, Told "each of them counts as one that could end the wait, and the report says so";
        /// Threads of a process in which some are ruled out one by one: each other one is an edge of the graph.
        MOST_GIVERS: usize = 256, Told "as above";
        /// Frames searched for the call that waits: the wait is at the innermost end.
        ENTRY_FRAMES: usize = 16, Beyond "the wait is at the innermost end; further out its name would be another call's";
    }
    /// The family of CPython.
    cpython {
        /// Items of a queue that are searched for a future.
        QUEUE_ITEMS: u64 = 1 << 14, Gap "that further items of the queue were not searched for the future";
        /// Native frames between the eval loop and the system call that are searched for the object.
        NATIVE_FRAMES: usize = 24, Beyond "between the interpreter and the wait lie fewer";
        /// Objects of one process that are read.
        SHARED_OBJECTS: usize = 4096, Gap "that further objects were not searched for locks of multiprocessing";
        /// Frames that are searched for the hub of greenlets: eventlet's waits in a function or two of its own.
        HUB_FRAMES: usize = 4, Beyond "further out another greenlet would have run";
        /// Objects near a greenlet that are searched for the one that wakes it.
        NEAR_A_GREENLET: usize = 2048, Told "what that greenlet waits for is not said";
        /// Waiters of one object that are searched for a greenlet.
        WAITERS_OF_ONE: u64 = 4096, Told "what that greenlet waits for is not said";
        /// Workers of a pool of processes.
        POOL_WORKERS: u64 = 4096, Told "whether a task of that pool is lost is not said";
        /// Objects that an object after `with` leads to, for who may have something of a pool.
        LED_TO: usize = 1024, Beyond "a connection leads to its pool by fewer";
        /// Blocks whose objects are followed so.
        BLOCKS_LED: usize = 32, Beyond "those who have something of one pool are fewer";
        /// Waiting tasks of one process that are reported: each is compared with each other.
        TASKS_WAITING: usize = 256, Gap "that further tasks were not looked at";
        /// Futures that one task gathers.
        GATHERED_FUTURES: u64 = 256, Gap "that further futures that the task gathers were not looked at";
        /// Tasks that are read.
        MOST_TASKS: usize = 10_000, Gap "that further tasks were not looked at";
        /// Coroutines that await each other.
        MOST_COROUTINES: usize = 64, Gap "that the inner coroutines of the task were not looked at";
        /// Scopes of trio around one task, and nurseries.
        CANCEL_SCOPES: usize = 128, Gap "that the task is taken for one that may be cancelled";
        /// Bytes behind a thread state that are searched for the list of its tasks (3.14.10: 40, 3.15.2: 168).
        SEARCHED_FOR_TASKS: u64 = 512, Beyond "the list's place was found well within in each version there is";
        /// Generators inside generators, stacks inside stacks.
        NESTED_STACKS: usize = 8, Gap "that what lies deeper was not searched for locks";
        /// Callbacks of an ExitStack.
        STACK_CALLBACKS: u64 = 256, Gap "that further callbacks were not searched for locks";
        /// Objects that are read for one process.
        CONTAINED_OBJECTS: usize = 4096, Gap "that further objects were not searched for suspended generators";
        /// Items of a container.
        CONTAINER_ITEMS: u64 = 256, Gap "that further items of a container were not searched for suspended generators, where a lock's holder is looked for so";
        /// Context managers of contextlib one inside the other in a suspended generator.
        SUSPENDED_STACKS: usize = 2, Gap "that what lies deeper was not searched for locks";
        /// Containers and instances inside each other.
        CONTAINER_LEVELS: usize = 2, Beyond "the search is for what a frame has at hand, not for all objects";
        /// Frames from the innermost one in which a thread that takes the GIL has its function.
        GIL_FRAMES: usize = 8, Beyond "whoever takes the GIL sleeps right inside of it";
        /// Items of a tuple that is the key of a task.
        KEY_PARTS: u64 = 16, Told "the key is told without what follows";
        /// Critical sections that one thread is in.
        CRITICAL_SECTIONS: usize = 1024, Gap "that sections further out were not looked at";
        /// Leases that one object of a lock or semaphore has.
        LEASES: u64 = 256, Gap "that further leases of the semaphore were not looked at";
        /// Workers, schedulers, nannies and clients of one process.
        CLUSTER_OBJECTS: u64 = 256, Gap "that further ones were not looked at";
        /// Tasks of one worker or scheduler that are read.
        CLUSTER_TASKS: u64 = 4096, Gap "that further tasks were not looked at";
        /// Frames of a library around a wait.
        LIBRARY_FRAMES: usize = 12, Beyond "the standard library's methods lie no deeper inside each other";
    }
    /// The family of the C library.
    libc {
        /// Frames that are searched for the runner of Rust's tests: between its call and the futex there are fourteen.
        RUNNER_FRAMES: usize = 24, Beyond "the runner is a thread like any other, whose wait has a time-out";
        /// Frames that are searched for a call of the C library that the thread is inside of.
        CALL_FRAMES: usize = 8, Beyond "a wait of the C library is no deeper";
        /// Nothing is mapped below, in the first page: what is smaller is no pointer.
        LOWEST_ADDRESS: u64 = 4097, Shape "the word is no address";
        /// Frames whose registers are searched where the clean-up buffer was not found.
        CONDITION_FRAMES: usize = 5, Beyond "the C library's own frames are fewer";
        /// More readers than any process has threads mean that it is no rwlock.
        MOST_READERS: u32 = 1 << 20, Shape "the words are no rwlock";
        /// More waiters than any process has threads mean that it is no semaphore.
        SEMAPHORE_WAITERS: u32 = 10_000, Shape "the words are no semaphore";
        /// Waiters in the list of a condition of musl.
        MUSL_WAITERS: usize = 1 << 14, Shape "the list is damaged and its end is not the condition's";
        /// More parties than any process has threads mean that it is no barrier.
        MOST_PARTIES: u32 = 1 << 20, Shape "the words are no barrier";
        /// More waiters than any process has threads mean that it is no condition.
        CONDITION_WAITERS: u32 = 1 << 20, Shape "the words are no condition";
        /// Bytes above the stack pointer in which the clean-up buffer {.., cond, mutex, ..} was found (at most 0x70 plus
        /// three hidden frames).
        CLEANUP_RANGE: u64 = 768, Beyond "the buffer lies right above the wait";
        /// Frames searched for a call that has not come back.
        INSIDE_FRAMES: usize = 64, Gap "that threads are too deep to tell whether they are inside the call, where nobody is found there";
        /// Frames of one call that runs an initialiser: from the function that calls the initialiser to the one that gave the
        /// control there are four at -O0 (libstdc++ 12).
        ONCE_FRAMES: usize = 5, Beyond "further out the address would be another call's";
        /// Frames searched: Rust and C++ wrap their waits in several.
        WRAPPER_FRAMES: usize = 10, Beyond "further out the name would be another call's";
        /// How far into an object the lock may lie that a program makes itself of a futex.
        LARGEST_OBJECT: u64 = 256, Beyond "a call that gives back such a lock by a larger object is not seen, and its taker stays a candidate";
        /// Frames that are searched for the mutex of a thread parked for ever; the next bound is for stack bytes
        /// (libc.md section 4).
        PARKED_FRAMES: usize = 4, Beyond "glibc's own frames are fewer";
        /// Stack bytes that are searched for that mutex.
        PARKED_BYTES: u64 = 768, Beyond "glibc's own frames are fewer";
        /// The kernel gives no task a greater id (PID_MAX_LIMIT).
        GREATEST_OWNER: i32 = 1 << 22, Shape "the word is no owner";
        /// Nesting and users of a mutex beyond this mean that it is none.
        MOST_USERS: u32 = 1 << 16, Shape "the words are no mutex";
    }
    /// The family of Abseil.
    absl {
        /// Frames whose registers are searched: from the futex to the caller of `Lock` there are six (measured with -O0
        /// and -O2).
        LOCK_FRAMES: usize = 10, Beyond "Abseil's own frames are fewer";
        /// Locks in the list that a thread holds: Abseil has room for no more.
        MOST_HELD: u32 = 40, Shape "the list is none";
    }
    /// Cores of GPUs.
    gpu {
        /// Sections of a file: a device that is full of threads has 270,000 of them, and four sections each.
        MOST_SECTIONS: u64 = 8 << 20, Gap "how many sections of the GPU core there are, and that not all were read";
        /// Bytes of one table: that of a device's multiprocessors, the largest, has 6 KiB.
        LARGEST_TABLE: u64 = 16 << 20, Gap "that a table of the GPU core was read in part";
        /// Bytes of the code of one module: the largest of PyTorch's has 30 MiB.
        LARGEST_IMAGE: u64 = 512 << 20, Gap "that code in the GPU core was not read, so that kernels in it have no name";
        /// Bytes of a device's name.
        LARGEST_NAME: u64 = 256, Beyond "a name of NVIDIA's has a few dozen";
        /// Modules whose code is read: those with kernels that run.
        MOST_IMAGES: usize = 4096, Gap "that further modules of the GPU were not read";
        /// Functions of one module.
        MOST_FUNCTIONS: usize = 1 << 18, Gap "that further functions of the GPU were not read";
        /// Lines of one module.
        MOST_ROWS: usize = 4 << 20, Gap "that further source lines of the GPU were not read";
        /// Files that the lines of one module are of.
        MOST_FILES: usize = 1 << 16, Gap "that further source files of the GPU were not read";
        /// Functions inlined into each other.
        DEEPEST_INLINING: usize = 64, Gap "that further inlined calls on the GPU were not read";
        /// Calls of one thread.
        DEEPEST_CALLS: usize = 64, Gap "that further calls of a thread of the GPU were not read";
        /// Devices of a process.
        MOST_DEVICES: usize = 64, Beyond "no driver gives a process more";
        /// Kernels of one device: hardware runs 128 at a time.
        MOST_KERNELS: usize = 4096, Gap "that further kernels were not read";
        /// Addresses at which a kernel has threads.
        MOST_PLACES: usize = 1 << 16, Gap "that further places of a kernel's threads were not read";
        /// Words of a kernel's arguments: it has at most 32 KiB.
        MOST_ARGUMENTS: usize = 4096, Beyond "a kernel has at most 32,764 bytes of arguments (CUDA 12.1)";
        /// Errors of one device.
        MOST_ERRORS: usize = 256, Gap "that further errors of kernels were not read";
    }
    /// The family of CUDA.
    cuda {
        /// Program headers of the driver's library that are searched for its note.
        MOST_HEADERS: u16 = 64, Shape "the driver's library has a dozen";
        /// Bytes of a note of the driver's library.
        LARGEST_NOTE: usize = 4096, Shape "the driver's notes take a few hundred bytes";
        /// Frames around a wait for the GPU whose code is read for what was queued before.
        FRAMES_READ: usize = 8, Beyond "what a thread waits for it has queued near there";
        /// Arguments of a kernel that are read as addresses of the host.
        ARGUMENTS_READ: usize = 64, Told "the report lists all arguments";
        /// Frames of the C library below a thread's first function: `start_thread`, `clone`.
        STARTS_THREADS: usize = 3, Beyond "the C library starts a thread with no more";
        /// Runtimes of CUDA in a process that are searched for the last errors of threads.
        RUNTIMES_ASKED: usize = 8, Beyond "a process has one or two";
        /// Calls of the function that returns a thread's last error: it has about ten.
        CALLS_OF_A_QUESTION: usize = 64, Shape "the function is short";
    }
    /// The data that findings read.
    verdict {
        /// Members of a cycle, or other parties, that are reported one by one with their lines of source.
        SCENES_TOLD: usize = 16, Told "how many more there are, and all of them in the JSON";
        /// Holders of one resource that are named where a thread waits for it.
        HOLDERS_NAMED: usize = 2, Told "how many more hold it";
        /// Locks of a cycle that its title names.
        NAMED_IN_A_TITLE: usize = 3, Told "how many they are";
        /// Things that could end a wait and that the report names.
        SOURCES_TOLD: usize = 3, Told "the first ones suffice to see why no hang is proven";
        /// Ends of chains that the sentence names.
        ROOTS_TOLD: usize = 4, Told "the summary says how many more there are";
        /// Waits that the message shows in full.
        WAITS_TOLD: usize = 4, Told "the message says how many more there are";
        /// Kernels of a process that get a finding.
        KERNELS_TOLD: usize = 8, Told "the report lists all kernels with their GPU";
        /// Bytes between the first and the last instruction at which threads of a kernel stand that polls a word: 64 instructions of 16
        /// bytes (Volta and newer).
        LARGEST_LOOP: u64 = 1024, Shape "a loop that polls is smaller";
        /// Ranks for which NCCL's RAS reports the same.
        RANKS_TOLD: usize = 4, Told "the message says how many more there are";
        /// Errors of kernels that get a finding.
        ERRORS_TOLD: usize = 4, Told "the report lists all errors with their GPU";
        /// Frames of the C library and of the driver at the outer end of a thread that the driver made.
        OUTERMOST_FRAMES: usize = 4, Beyond "a thread with more has begun in other code";
        /// Frames around a wait that are searched for the driver's.
        CALL_FRAMES: usize = 16, Beyond "the driver's own frames lie right around its locks";
    }
    /// Cycles.
    graph {
        /// How many cycles are given in full.
        MOST_CYCLES: usize = 50, Told "the report says how many more there are";
        /// How many distinct cycles are collected before the shortest are chosen.
        MOST_FOUND: usize = 2_000, Told "the report says that the search was given up";
        /// Edges followed in all searches together: about a second of work in the worst case.
        STEPS: usize = 4_000_000, Told "the report says that the search was given up";
    }
}
