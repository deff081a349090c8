//! Names that decide how far code reaches: of functions, modules and types of CPython's standard library.
//!
//! In: nothing. Out: tables for the walk, which alone reads them.

/// Names by which code reaches what it does not name.
pub(super) const NAMES_ANYTHING: &[&str] = &[
    "getattr",
    "attrgetter",
    "methodcaller",
    "eval",
    "exec",
    "globals",
    "vars",
    "__import__",
    "import_module",
    "__dict__",
    "__globals__",
    "__closure__",
    "__subclasses__",
    "f_locals",
    "f_globals",
    "f_back",
    "_getframe",
    "__builtins__",
    "setattr",
    "locals",
    "breakpoint",
    "_current_frames",
    "get_objects",
    "get_referrers",
    "ctypes",
    "CDLL",
    "loads",
    "Unpickler",
];

/// Modules of the standard library whose instances only do what their callers ask for.
pub(super) const LIBRARY_MODULES: &[&str] = &[
    "threading",
    "queue",
    "concurrent",
    "asyncio",
    "_asyncio",
    "multiprocessing",
    "logging",
    "subprocess",
    "selectors",
    "trio",
    "anyio",
];

/// Classes without references of interest.
pub(super) const INERT: &[&str] = &[
    "str",
    "int",
    "float",
    "bool",
    "bytes",
    "bytearray",
    "complex",
    "range",
    "NoneType",
    "NotImplementedType",
    "ellipsis",
    "code",
    "_thread.lock",
    "_thread.RLock",
    "frame",
    "method_descriptor",
    "wrapper_descriptor",
    "slot wrapper",
    "getset_descriptor",
    "member_descriptor",
    "classmethod_descriptor",
];

/// Functions that the interpreter calls by itself on any thread: module and global.
pub(super) const CALLED_BY_ITSELF: &[(&str, &str)] = &[
    ("sys", "stdout"),
    ("sys", "stderr"),
    ("sys", "excepthook"),
    ("sys", "unraisablehook"),
    ("threading", "excepthook"),
    ("threading", "_profile_hook"),
    ("threading", "_trace_hook"),
    ("gc", "callbacks"),
    ("logging", "_handlerList"),
];

/// Where audit hooks stand behind the field for `sys.modules` in an interpreter: version, the first byte to read, and how many. Lists of
/// freed objects follow them (Include/internal/pycore_interp.h; at 2648, 2680, 2648, 2664, 266264 and 3152 in 3.8.18, 3.9.18, 3.10.13,
/// 3.11.7, 3.12.1 and 3.13.0).
pub(super) const AUDIT_HOOKS: &[(u8, u8, u64, u64)] = &[
    (3, 8, 2584, 80),
    (3, 9, 2616, 80),
    (3, 10, 2584, 80),
    (3, 11, 2600, 80),
    (3, 12, 266_200, 80),
    (3, 13, 3088, 80),
];

/// Handlers of logs, which every call that logs runs.
pub(super) const LOG_HANDLERS: &[(&str, &str)] = &[("logging", "_handlerList")];

/// Functions that an import of an unloaded module calls.
pub(super) const IMPORT_HOOKS: &[(&str, &str)] = &[("sys", "meta_path"), ("sys", "path_hooks")];

/// Methods that run only when their class is called.
pub(super) const MAKES_INSTANCES: &[&str] =
    &["__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"];

/// Special methods by which an object describes itself and its parts, or is compared: those of the standard library's own
/// classes do nothing but ask these parts.
pub(super) const ONLY_DESCRIBES: &[&str] = &[
    "__class_getitem__",
    "__copy__",
    "__deepcopy__",
    "__dir__",
    "__eq__",
    "__format__",
    "__getstate__",
    "__hash__",
    "__lt__",
    "__or__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__ror__",
    "__setstate__",
    "__sizeof__",
    "__str__",
];

/// Names of the form of special methods which no operation of the language leads to: what copies and pickles looks them up.
pub(super) const CALLED_BY_NAME: &[&str] = &[
    "__copy__",
    "__deepcopy__",
    "__dict__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getstate__",
    "__reduce__",
    "__reduce_ex__",
    "__replace__",
    "__setstate__",
];

/// Methods of loggers, by which code calls whatever handlers the program has.
pub(super) const LOGS: &[&str] =
    &["critical", "debug", "error", "exception", "fatal", "handle", "info", "log", "warn", "warning"];

/// Names by which code cancels the tasks of a scope that it has at hand.
pub(crate) const CANCELS: &[&str] = &["cancel", "deadline", "relative_deadline", "reschedule"];

/// Names by which code comes from an instance to its class.
pub(super) const NAMES_CLASSES: &[&str] = &["type", "__class__", "__mro__", "__bases__"];

/// Types of C that have nothing beside their items.
pub(super) const BUILTIN_CONTAINERS: &[&str] = &["dict", "list", "tuple", "set", "frozenset", "collections.deque"];

/// Modules of the standard library, written in Python, that look up by computed names only what their callers gave them.
pub(super) const PLAIN_LIBRARY: &[&str] = &[
    "_weakrefset",
    "abc",
    "asyncio",
    "attr",
    "codecs",
    "collections",
    "concurrent",
    "contextlib",
    "datetime",
    "encodings",
    "enum",
    "functools",
    "genericpath",
    "heapq",
    "io",
    "keyword",
    "linecache",
    "locale",
    "logging",
    "operator",
    "os",
    "pathlib",
    "posixpath",
    "queue",
    "random",
    "re",
    "reprlib",
    "selectors",
    "signal",
    "socket",
    "sre_compile",
    "sre_parse",
    "string",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "warnings",
    "weakref",
];

/// Modules written in C whose functions do nothing but to what they are given.
pub(super) const PLAIN_C_MODULES: &[&str] = &[
    "_abc",
    "_asyncio",
    "_bisect",
    "_blake2",
    "_codecs",
    "_collections",
    "_contextvars",
    "_datetime",
    "_decimal",
    "_functools",
    "_hashlib",
    "_heapq",
    "_io",
    "_json",
    "_locale",
    "_math",
    "_md5",
    "_operator",
    "_queue",
    "_random",
    "_sha1",
    "_sha2",
    "_sha256",
    "_sha512",
    "_socket",
    "_sre",
    "_ssl",
    "_stat",
    "_statistics",
    "_string",
    "_struct",
    "_thread",
    "_tracemalloc",
    "_typing",
    "_uuid",
    "_warnings",
    "_weakref",
    "array",
    "binascii",
    "builtins",
    "cmath",
    "errno",
    "fcntl",
    "gc",
    "grp",
    "io",
    "itertools",
    "math",
    "mmap",
    "posix",
    "pwd",
    "resource",
    "select",
    "sys",
    "termios",
    "time",
    "unicodedata",
    "zlib",
];

/// Functions of these that run or reach what they were not given, or end the process.
pub(super) const C_DOORS: &[(&str, &str)] = &[
    ("_thread", "interrupt_main"),
    ("gc", "get_objects"),
    ("gc", "get_referrers"),
    ("gc", "get_referents"),
    ("posix", "_exit"),
    ("posix", "abort"),
    ("posix", "kill"),
    ("posix", "killpg"),
    ("sys", "_current_frames"),
    ("sys", "_current_exceptions"),
    ("sys", "audit"),
];

/// First parts of the names of types of C whose instances have their references in themselves, or none.
pub(super) const READABLE_TYPES: &[&str] = &[
    "_asyncio",
    "_collections",
    "_collections_abc",
    "_contextvars",
    "_decimal",
    "_functools",
    "_hashlib",
    "_io",
    "_json",
    "_multiprocessing",
    "_operator",
    "_queue",
    "_random",
    "_socket",
    "_ssl",
    "_struct",
    "_thread",
    "_weakref",
    "_weakrefset",
    "array",
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "functools",
    "itertools",
    "mmap",
    "operator",
    "os",
    "posix",
    "random",
    "re",
    "_sre",
    "select",
    "signal",
    "string",
    "struct",
    "sys",
    "time",
    "types",
    "weakref",
    "weakproxy",
    "zlib",
];

/// Names by which code takes an object that another process has sent.
pub(super) const RECEIVING: &[&str] = &["recv", "get"];

/// Names by which code reads, writes, closes or makes descriptors, begins processes, which have them too, or ends its own. What
/// has a descriptor and is used without a name, as a file that is read line by line, is found as an object.
pub(crate) const USES_DESCRIPTORS: &[&str] = &[
    "read",
    "readv",
    "readinto",
    "readline",
    "readlines",
    "pread",
    "preadv",
    "recv",
    "recv_into",
    "recv_bytes",
    "recv_bytes_into",
    "recvfrom",
    "recvfrom_into",
    "recvmsg",
    "recvmsg_into",
    "recv_fds",
    "write",
    "writev",
    "writelines",
    "pwrite",
    "pwritev",
    "send",
    "sendall",
    "send_bytes",
    "sendto",
    "sendmsg",
    "send_fds",
    "sendfile",
    "splice",
    "copyfileobj",
    "close",
    "closerange",
    "shutdown",
    "detach",
    "dup",
    "dup2",
    "fdopen",
    "open",
    "openpty",
    "FileIO",
    "Path",
    "socket",
    "fromfd",
    "ioctl",
    "fcntl",
    "subprocess",
    "multiprocessing",
    "Process",
    "ProcessPoolExecutor",
    "Pool",
    "Popen",
    "popen",
    "system",
    "fork",
    "forkpty",
    "posix_spawn",
    "posix_spawnp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "execlpe",
    "_exit",
    "abort",
    "kill",
    "killpg",
    "pthread_kill",
    "raise_signal",
];

/// Classes whose instances have a descriptor, with where that is behind the head, if it is known (Modules/_io/fileio.c,
/// Modules/socketmodule.c).
pub(super) const DESCRIPTORS: &[(&str, Option<u64>)] = &[
    ("_io.FileIO", Some(0)),
    ("_socket.socket", Some(0)),
    ("socket", Some(0)),
    ("SSLSocket", Some(0)),
    ("Connection", None),
    ("select.epoll", None),
    ("Popen", None),
];
