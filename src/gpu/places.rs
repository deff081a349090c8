//! The tables of a GPU core joined: which kernel has how many threads at which place.
//!
//! In: [`Sections`]. Out: [`GpuCore`] without its path. A thread belongs to a warp, that to a block, that to a kernel; each table
//! names its parent's element. Threads on one line are one place.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::collective::Collective;
use super::image::ModuleImage;
use super::layout::{
    Element, Kind, about, block, call, context, device, exception, kernel, module, multiprocessor, thread, warp,
};
use super::lines::SourceLine;
use super::names::name_of;
use super::sections::{Section, Sections};
use super::{Context, Device, GpuCore, Kernel, KernelError, Place, Seen, Status};
use crate::limits;
use crate::limits::gpu::{
    DEEPEST_CALLS, MOST_ARGUMENTS, MOST_DEVICES, MOST_ERRORS, MOST_IMAGES, MOST_KERNELS, MOST_PLACES,
};

/// An element of a table: its section, and its position there.
type Owner = (u32, u32);

/// A kernel: the position of its device, its number.
type Key = (u32, u64);

/// The identity of a place: the function, its lines, and for code without lines the address.
type LineKey = (Option<String>, Vec<(String, u64)>, u64);

/// Blocks and warps that have threads there.
type Members = (HashSet<[u32; 3]>, HashSet<Owner>);

/// Threads at one address.
#[derive(Debug, Default)]
struct At {
    threads: usize,
    warps: HashSet<Owner>,
    blocks: HashSet<[u32; 3]>,
    example: ([u32; 3], [u32; 3]),
    /// Where the calls of that one stand.
    calls: Owner,
    exception: u64,
}

/// Read all.
pub(super) fn read(sections: &Sections<'_>) -> GpuCore {
    let mut core = GpuCore { driver: driver(sections), devices: devices(sections), ..GpuCore::default() };
    let modules = Modules::find(sections);
    let at = addresses(sections);
    let calls = sections.by_parent(Kind::Calls);
    for table in sections.of(Kind::Contexts) {
        let Some(device) = core.devices.get_mut(table.parent.1 as usize) else { continue };
        let contexts = sections.elements(table);
        // A device that the process does not use has one of zeros (seen with 580).
        let used = contexts.iter().filter_map(|element| {
            let handle = element.get(context::HANDLE).filter(|handle| *handle != 0)?;
            Some(Context { handle, event_thread: element.word(context::THREAD)? as i32 })
        });
        device.contexts.extend(used.take(MOST_KERNELS));
    }
    let arguments = sections.by_parent(Kind::Arguments);
    for table in sections.of(Kind::Kernels) {
        let position = table.parent.1;
        let Some(device) = core.devices.get_mut(position as usize) else { continue };
        let elements = sections.elements(table);
        for (index, element) in elements.iter().enumerate() {
            if device.kernels.len() >= MOST_KERNELS {
                limits::met(MOST_KERNELS, "kernels on a GPU", "of one device");
                break;
            }
            let arguments = arguments.get(&(table.number, index as u32)).map(|section| sections.elements(section));
            let number = element.get(kernel::NUMBER).unwrap_or_default();
            let own = at.get(&(position, number));
            device.kernels.push(one_kernel(
                sections,
                &modules,
                element,
                arguments.as_ref().map(|one| one.bytes()),
                own,
                &calls,
            ));
        }
    }
    errors(sections, &modules, &at, &mut core);
    core
}

fn driver(sections: &Sections<'_>) -> Option<String> {
    let elements = sections.elements(sections.of(Kind::About).first()?);
    let element = elements.iter().next()?;
    let [major, minor] = about::DRIVER.map(|field| element.word(field));
    Some(format!("{}.{:02}", major?, minor?))
}

fn devices(sections: &Sections<'_>) -> Vec<Device> {
    let Some(table) = sections.of(Kind::Devices).first() else { return Vec::new() };
    let elements = sections.elements(table);
    let one = |element: Element<'_>| Device {
        number: element.word(device::NUMBER).unwrap_or_default(),
        name: element.get(device::NAME).map(|at| sections.string(at)).unwrap_or_default(),
        architecture: element.get(device::ARCHITECTURE).map(|at| sections.string(at)).unwrap_or_default(),
        multiprocessors: element.word(device::MULTIPROCESSORS).unwrap_or_default(),
        ..Device::default()
    };
    elements.iter().take(MOST_DEVICES).map(one).collect()
}

/// Code of modules, read on request.
struct Modules<'s> {
    sections: &'s Sections<'s>,
    /// Images by the module's handle.
    images: HashMap<u64, &'s Section>,
    read: std::cell::RefCell<HashMap<u64, std::rc::Rc<ModuleImage>>>,
}

impl<'s> Modules<'s> {
    fn find(sections: &'s Sections<'s>) -> Modules<'s> {
        let mut handles: HashMap<Owner, u64> = HashMap::new();
        for table in sections.of(Kind::Modules) {
            let elements = sections.elements(table);
            let found = elements
                .iter()
                .enumerate()
                .filter_map(|(index, element)| Some(((table.number, index as u32), element.get(module::HANDLE)?)));
            handles.extend(found);
        }
        let images = sections.of(Kind::Image).iter();
        let images = images.filter_map(|section| Some((*handles.get(&section.parent)?, section))).collect();
        Modules { sections, images, read: std::cell::RefCell::default() }
    }

    /// The one with this address in a function.
    fn at(&self, address: u64) -> Option<std::rc::Rc<ModuleImage>> {
        let mut handles: Vec<u64> = self.images.keys().copied().collect();
        handles.sort_unstable();
        handles.into_iter().filter_map(|handle| self.get(handle)).find(|image| image.function(address).is_some())
    }

    /// The module with this handle.
    fn get(&self, handle: u64) -> Option<std::rc::Rc<ModuleImage>> {
        if let Some(known) = self.read.borrow().get(&handle) {
            return Some(known.clone());
        }
        if self.read.borrow().len() >= MOST_IMAGES {
            limits::met(MOST_IMAGES, "modules of the GPU", "with kernels that run");
            return None;
        }
        let section = self.images.get(&handle)?;
        let bytes = self.sections.image(section)?;
        let image = ModuleImage::parse(&bytes);
        crate::image::budget::give_back(bytes.len() as u64);
        if image.is_none() {
            self.sections.problem("code in the GPU core", "a module is no ELF file: kernels in it have no name");
        }
        let image = std::rc::Rc::new(image.unwrap_or_default());
        self.read.borrow_mut().insert(handle, image.clone());
        Some(image)
    }
}

/// The threads of each kernel by address.
fn addresses(sections: &Sections<'_>) -> HashMap<Key, BTreeMap<u64, At>> {
    let devices: HashMap<u32, u32> =
        sections.of(Kind::Multiprocessors).iter().map(|table| (table.number, table.parent.1)).collect();
    let mut blocks: HashMap<Owner, (Key, [u32; 3])> = HashMap::new();
    for table in sections.of(Kind::Blocks) {
        let Some(device) = devices.get(&table.parent.0) else { continue };
        let elements = sections.elements(table);
        for (index, element) in elements.iter().enumerate() {
            if let (Some(kernel), Some(at)) = (element.get(block::KERNEL), element.three(block::INDEX)) {
                blocks.insert((table.number, index as u32), ((*device, kernel), at));
            }
        }
    }
    let mut warps: HashMap<Owner, (Key, [u32; 3], u32)> = HashMap::new();
    for table in sections.of(Kind::Warps) {
        let Some((key, at)) = blocks.get(&table.parent) else { continue };
        let elements = sections.elements(table);
        for (index, element) in elements.iter().enumerate() {
            let valid = element.word(warp::VALID).unwrap_or(u32::MAX);
            warps.insert((table.number, index as u32), (*key, *at, valid));
        }
    }
    let mut found: HashMap<Key, BTreeMap<u64, At>> = HashMap::new();
    for table in sections.of(Kind::Threads) {
        let Some((key, at, valid)) = warps.get(&table.parent) else { continue };
        let places = found.entry(*key).or_default();
        let elements = sections.elements(table);
        for (index, element) in elements.iter().enumerate() {
            let lane = element.word(thread::LANE).unwrap_or(index as u32);
            let is_valid = lane >= u32::BITS || valid & (1 << lane) != 0;
            let (Some(address), true) = (element.get(thread::ADDRESS), is_valid) else { continue };
            if !places.contains_key(&address) && places.len() >= MOST_PLACES {
                limits::met(MOST_PLACES, "places where threads of a kernel are", "of one kernel");
                continue;
            }
            let here = places.entry(address).or_default();
            if here.threads == 0 {
                here.example = (*at, element.three(thread::INDEX).unwrap_or_default());
                here.calls = (table.number, index as u32);
            }
            here.threads += 1;
            here.warps.insert(table.parent);
            here.blocks.insert(*at);
            here.exception = here.exception.max(element.get(thread::EXCEPTION).unwrap_or_default());
        }
    }
    found
}

fn one_kernel(
    sections: &Sections<'_>,
    modules: &Modules<'_>,
    element: Element<'_>,
    arguments: Option<&[u8]>,
    at: Option<&BTreeMap<u64, At>>,
    calls: &HashMap<Owner, &Section>,
) -> Kernel {
    let entry = element.get(kernel::ENTRY).unwrap_or_default();
    let image = element.get(kernel::MODULE).and_then(|handle| modules.get(handle));
    let function = image.as_ref().and_then(|image| image.function(entry));
    let symbol = function.map(|function| function.symbol.clone()).unwrap_or_default();
    let name = match function {
        Some(function) => name_of(&function.symbol),
        None => format!("the kernel at {entry:#x}"),
    };
    let (mut blocks, mut warps): (HashSet<[u32; 3]>, HashSet<Owner>) = Default::default();
    let mut by_line: BTreeMap<LineKey, (Place, Members)> = BTreeMap::new();
    let mut seen = Seen::default();
    for (address, here) in at.into_iter().flatten() {
        let own = image.as_ref().and_then(|image| image.function(*address));
        let inner = own.filter(|own| own.start != entry).map(|own| name_of(&own.symbol));
        let lines = image.as_ref().map(|image| image.lines(*address)).unwrap_or_default();
        // Places without lines differ by their address.
        let key: Vec<(String, u64)> = lines.iter().map(|line| (line.file.clone(), line.line)).collect();
        let apart = if key.is_empty() { *address } else { 0 };
        let (place, of_place) = by_line.entry((inner.clone(), key, apart)).or_default();
        if place.seen.threads == 0 {
            place.calls = called_by(sections, image.as_deref(), calls.get(&here.calls).copied());
            (place.function, place.lines, place.example) = (inner, lines, here.example);
        }
        place.addresses.push(*address);
        place.seen.threads += here.threads;
        of_place.0.extend(&here.blocks);
        of_place.1.extend(&here.warps);
        seen.threads += here.threads;
        blocks.extend(&here.blocks);
        warps.extend(&here.warps);
    }
    let counted = |(mut place, (blocks, warps)): (Place, Members)| {
        (place.seen.blocks, place.seen.warps) = (blocks.len(), warps.len());
        place
    };
    let mut places: Vec<Place> = by_line.into_values().map(counted).collect();
    places.sort_by_key(|place| std::cmp::Reverse((place.seen.threads, place.seen.warps)));
    (seen.blocks, seen.warps) = (blocks.len(), warps.len());
    let mut grid = element.three(kernel::GRID).unwrap_or_default();
    // The table has 1 x 1 x 1 for a cooperative launch; its blocks show more (seen with 580).
    for block in &blocks {
        for (size, index) in grid.iter_mut().zip(block) {
            *size = (*size).max(index.saturating_add(1));
        }
    }
    let words = arguments.unwrap_or_default().chunks(8).take(MOST_ARGUMENTS).map(|bytes| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    Kernel {
        number: element.get(kernel::NUMBER).unwrap_or_default(),
        context: element.get(kernel::CONTEXT).unwrap_or_default(),
        collective: Collective::of(&symbol),
        name,
        symbol,
        status: match element.get(kernel::STATUS) {
            Some(1) => Status::Pending,
            Some(2) => Status::Active,
            Some(3) => Status::Sleeping,
            Some(4) => Status::Terminated,
            _ => Status::Unknown,
        },
        from_gpu: element.get(kernel::ORIGIN) == Some(1),
        grid,
        block: element.three(kernel::BLOCK).unwrap_or_default(),
        cluster: element.three(kernel::CLUSTER).unwrap_or_default(),
        arguments: words.collect(),
        seen,
        places,
    }
}

/// The calls that led to where a thread is, the innermost first.
fn called_by(sections: &Sections<'_>, image: Option<&ModuleImage>, table: Option<&Section>) -> Vec<SourceLine> {
    let (Some(image), Some(table)) = (image, table) else { return Vec::new() };
    let elements = sections.elements(table);
    let returns = elements.iter().filter_map(|element| element.get(call::ADDRESS)).filter(|address| *address > 0);
    let mut found = Vec::new();
    for address in returns {
        if found.len() >= DEEPEST_CALLS {
            limits::met(DEEPEST_CALLS, "calls of a thread of the GPU", "of one thread");
            break;
        }
        // Where a call returns to may be of the next line.
        let before = address.saturating_sub(1);
        let mut line = image.lines(before).into_iter().next().unwrap_or_default();
        if line.function.is_none() {
            line.function = image.function(before).map(|function| name_of(&function.symbol));
        }
        found.push(line);
    }
    found
}

/// Errors, by the multiprocessors, whose word is the most exact, else by where the threads stand that have one.
fn errors(sections: &Sections<'_>, modules: &Modules<'_>, at: &HashMap<Key, BTreeMap<u64, At>>, core: &mut GpuCore) {
    let mut struck: BTreeMap<(u32, u64), (usize, Option<u64>)> = BTreeMap::new();
    for ((device, _), places) in at {
        for (address, here) in places.iter().filter(|(_, here)| here.exception > 0) {
            let (threads, first) = struck.entry((*device, here.exception)).or_default();
            *threads += here.threads;
            *first = Some(first.map_or(*address, |known: u64| known.min(*address)));
        }
    }
    let mut exact: BTreeMap<(u32, u64), BTreeSet<u64>> = BTreeMap::new();
    for table in sections.of(Kind::Multiprocessors) {
        let elements = sections.elements(table);
        for element in elements.iter() {
            let code = element.get(multiprocessor::EXCEPTION).unwrap_or_default();
            if code > 0 && code != u64::from(u32::MAX) {
                let has_address = element.get(multiprocessor::HAS_ADDRESS).is_some_and(|has| has != 0);
                let address = element.get(multiprocessor::ADDRESS).filter(|address| has_address && *address > 0);
                exact.entry((table.parent.1, code)).or_default().extend(address);
            }
        }
    }
    // Before 555 only the warps say which instruction it was: their threads stand behind it.
    let mut of_warps = BTreeSet::new();
    for table in sections.of(Kind::Warps) {
        let elements = sections.elements(table);
        let failed = |element: &Element<'_>| element.get(warp::HAS_ERROR_ADDRESS).is_some_and(|has| has != 0);
        of_warps.extend(elements.iter().filter(failed).filter_map(|element| element.get(warp::ERROR_ADDRESS)));
    }
    let codes: BTreeSet<(u32, u64)> = struck.keys().chain(exact.keys()).copied().collect();
    for (position, code) in codes {
        let Some(device) = core.devices.get_mut(position as usize) else { continue };
        let (threads, stands) = struck.get(&(position, code)).copied().unwrap_or_default();
        let mut addresses: Vec<Option<u64>> =
            exact.get(&(position, code)).into_iter().flatten().chain(&of_warps).copied().map(Some).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            addresses.push(stands);
        }
        for address in addresses {
            if device.errors.len() >= MOST_ERRORS {
                limits::met(MOST_ERRORS, "errors of kernels", "of one device");
                return;
            }
            let image = address.and_then(|address| modules.at(address));
            let function = address.and_then(|address| image.as_ref()?.function(address));
            device.errors.push(KernelError {
                kernel: function.map(|function| name_of(&function.symbol)),
                what: exception(code).unwrap_or_default(),
                address,
                lines: address.and_then(|address| Some(image.as_ref()?.lines(address))).unwrap_or_default(),
                threads,
            });
        }
    }
}
