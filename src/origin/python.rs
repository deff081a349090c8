//! Whose a file of Python code is, by the folders that the interpreter names.
//!
//! In: the folder of the standard library, the entries of `sys.path`, a file as a code object has it.
//! Out: its [`Origin`]. A file is in a folder or it is not: no folder is recognised by its name alone.

use std::collections::HashSet;

use super::{Origin, OriginKind};

/// Modules that are frozen into the interpreter. Source: Python/frozen.c of CPython 3.8 to 3.15.
const FROZEN: &[&str] = &[
    "__hello__",
    "__phello__",
    "_collections_abc",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "_sitebuiltins",
    "abc",
    "codecs",
    "genericpath",
    "getpath",
    "importlib",
    "io",
    "ntpath",
    "os",
    "posixpath",
    "runpy",
    "site",
    "stat",
    "zipimport",
];

/// Packages that run tests: pytest and the plugins that call the tests.
const TEST_RUNNERS: &[&str] = &["nose2", "pluggy", "pytest", "xdist"];

/// Where a process's Python code comes from. Folders have no slash at their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PythonFolders {
    /// The standard library, under each name that code objects have for it.
    pub(crate) stdlib: Vec<String>,
    /// Folders of installed packages.
    pub(crate) packages: Vec<String>,
    /// The folder of lockscope's own plugin.
    pub(crate) lockscope: Option<String>,
    /// Names of the standard library's modules, where a bundle keeps only relative names of files (PyInstaller).
    pub(crate) bundled: HashSet<String>,
    /// The folders come from the paths of mapped files, since memory does not have them.
    pub(crate) from_mappings: Option<(u8, u8)>,
}

impl PythonFolders {
    /// Whose code a file is.
    pub(crate) fn of(&self, file: &str) -> Origin {
        if let Some(module) = file.strip_prefix("<frozen ") {
            let module = module.trim_end_matches('>');
            return if FROZEN.contains(&first_part(module)) { stdlib(module) } else { Origin::default() };
        }
        if let Some(rest) = self.lockscope.as_deref().and_then(|folder| below(file, folder)) {
            return package(&format!("lockscope.{}", module(rest)));
        }
        if let Some(rest) = self.packages.iter().filter_map(|folder| below(file, folder)).min_by_key(|rest| rest.len())
        {
            return package(&module(rest));
        }
        if let Some(rest) = self.stdlib.iter().find_map(|folder| below(file, folder)) {
            // Without a virtual environment, packages lie in a folder of the library's.
            let installed = PACKAGE_FOLDERS.iter().find_map(|name| below(rest, name));
            return installed.map_or_else(|| stdlib(&module(rest)), |rest| package(&module(rest)));
        }
        if let Some(rest) = self.from_mappings.and_then(|version| installed(file, version)) {
            return package(&module(rest));
        }
        let module = module(file);
        if self.bundled.contains(first_part(&module)) { stdlib(&module) } else { Origin::default() }
    }

    /// Whose code a native module is, where its file lies in one of the folders: an extension module.
    pub(crate) fn of_native_module(&self, path: &str) -> Option<Origin> {
        let origin = self.of(path);
        let kind = match origin.kind {
            OriginKind::Stdlib => OriginKind::Interpreter,
            OriginKind::Program => return None,
            kind => kind,
        };
        Some(Origin { kind, module: None, ..origin })
    }
}

/// Whether code of this file takes a lock on behalf of its caller, for records that have names of files and nothing besides.
pub(crate) fn takes_locks_for_callers(file: &str) -> bool {
    file.ends_with("/threading.py") || file.starts_with("<frozen ")
}

/// Names that `site` gives folders of installed packages; the second one is Debian's.
pub(crate) const PACKAGE_FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];

/// The part of a path below a folder.
fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

/// The part of a path below a folder that `site` would make for this version: `lib/python3.11/site-packages`.
fn installed(path: &str, (major, minor): (u8, u8)) -> Option<&str> {
    let own = [format!("python{major}.{minor}"), format!("python{major}")];
    PACKAGE_FOLDERS.iter().find_map(|name| {
        let (folder, rest) = path.rsplit_once(&format!("/{name}/"))?;
        let (_, last) = folder.rsplit_once('/')?;
        own.iter().any(|own| own == last).then_some(rest)
    })
}

/// `asyncio/base_events.py` is the module `asyncio.base_events`.
fn module(path: &str) -> String {
    let path = path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyc")).unwrap_or(path);
    path.strip_suffix("/__init__").unwrap_or(path).replace('/', ".")
}

/// The outermost package of a module, or the module itself.
fn first_part(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

fn stdlib(module: &str) -> Origin {
    Origin { module: Some(module.into()), ..Origin::named(OriginKind::Stdlib, first_part(module)) }
}

/// `_pytest.runner` is of pytest.
fn package(module: &str) -> Origin {
    let name = first_part(module).trim_start_matches('_');
    let kind = match name {
        "lockscope" => OriginKind::Lockscope,
        _ if TEST_RUNNERS.contains(&name) => OriginKind::TestRunner,
        _ => OriginKind::Package,
    };
    Origin { module: Some(module.into()), ..Origin::named(kind, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(stdlib: &[&str], packages: &[&str]) -> PythonFolders {
        let own = |list: &[&str]| list.iter().map(|folder| (*folder).to_owned()).collect();
        PythonFolders { stdlib: own(stdlib), packages: own(packages), ..PythonFolders::default() }
    }

    fn of(folders: &PythonFolders, file: &str) -> (OriginKind, Option<String>) {
        let origin = folders.of(file);
        (origin.kind, origin.name.map(|name| name.to_string()))
    }

    fn is(kind: OriginKind, name: &str) -> (OriginKind, Option<String>) {
        (kind, Some(name.to_owned()))
    }

    #[test]
    fn folders_and_not_names_decide() {
        let debian = folders(
            &["/usr/lib/python3.11"],
            &["/usr/lib/python3/dist-packages", "/venv/lib/python3.11/site-packages"],
        );
        for (file, expected) in [
            ("/usr/lib/python3.11/threading.py", is(OriginKind::Stdlib, "threading")),
            ("/usr/lib/python3.11/concurrent/futures/_base.py", is(OriginKind::Stdlib, "concurrent")),
            ("<frozen importlib._bootstrap>", is(OriginKind::Stdlib, "importlib")),
            ("<frozen app>", (OriginKind::Program, None)),
            ("/usr/lib/python3/dist-packages/yaml/__init__.py", is(OriginKind::Package, "yaml")),
            ("/venv/lib/python3.11/site-packages/_pytest/runner.py", is(OriginKind::TestRunner, "pytest")),
            ("/venv/lib/python3.11/site-packages/trio/_core/_run.py", is(OriginKind::Package, "trio")),
            ("/venv/lib/python3.11/site-packages/six.py", is(OriginKind::Package, "six")),
            ("/usr/lib/python3.11/site-packages/rich/live.py", is(OriginKind::Package, "rich")),
            // A project's own, whatever it is called.
            ("/srv/app/logging/__init__.py", (OriginKind::Program, None)),
            ("/srv/asyncio/app.py", (OriginKind::Program, None)),
            ("/srv/queue.py", (OriginKind::Program, None)),
            ("/usr/lib/python3.11-apps/threading.py", (OriginKind::Program, None)),
            ("/srv/site-packages/app.py", (OriginKind::Program, None)),
            ("queue.py", (OriginKind::Program, None)),
            ("<string>", (OriginKind::Program, None)),
            ("", (OriginKind::Program, None)),
        ] {
            assert_eq!(of(&debian, file), expected, "{file}");
        }
    }

    #[test]
    fn archives_and_bundles() {
        let zip = folders(&["/opt/lib/python38.zip"], &["/root/.pex/installed_wheels/ab/trio-0.26-py3-none-any.whl"]);
        assert_eq!(of(&zip, "/opt/lib/python38.zip/threading.py"), is(OriginKind::Stdlib, "threading"));
        let wheel = "/root/.pex/installed_wheels/ab/trio-0.26-py3-none-any.whl/trio/_core/_run.py";
        assert_eq!(of(&zip, wheel), is(OriginKind::Package, "trio"));
        assert_eq!(of(&zip, "app.pyz/logging/__init__.py"), (OriginKind::Program, None));
        let bundle = PythonFolders { bundled: HashSet::from(["threading".to_owned()]), ..PythonFolders::default() };
        assert_eq!(of(&bundle, "threading.py"), is(OriginKind::Stdlib, "threading"));
        assert_eq!(of(&bundle, "myproj/threading.py"), (OriginKind::Program, None));
    }

    #[test]
    fn without_memory_the_shape_of_sites_folders_is_left() {
        let mapped = PythonFolders { from_mappings: Some((3, 11)), ..folders(&["/usr/lib/python3.11"], &[]) };
        assert_eq!(of(&mapped, "/v/lib/python3.11/site-packages/yaml/a.py"), is(OriginKind::Package, "yaml"));
        assert_eq!(of(&mapped, "/v/lib/python3/dist-packages/yaml/a.py"), is(OriginKind::Package, "yaml"));
        assert_eq!(of(&mapped, "/v/lib/python3.8/site-packages/yaml/a.py"), (OriginKind::Program, None));
        assert_eq!(of(&mapped, "/srv/site-packages/app.py"), (OriginKind::Program, None));
    }
}
