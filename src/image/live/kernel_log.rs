//! Reads the kernel's log for errors of GPUs.
//!
//! In: nothing. Out: [`DriverError`]s. Most users may not read the log: they get none. Nothing is written. No other
//! reader misses a message, since each opener of /dev/kmsg reads all of it (Documentation/ABI/testing/dev-kmsg).

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::image::gpu_errors::DriverError;
use crate::limits::live::{LONGEST_MESSAGE, MOST_GPUS, MOST_MESSAGES};

/// The driver's facts about each device, a folder for each location on the machine.
const DEVICES: &str = "/proc/driver/nvidia/gpus";

/// All that are in the log.
pub(super) fn gpu_errors() -> Vec<DriverError> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
    let log = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg");
    let Ok(mut log) = log else { return Vec::new() };
    let mut errors = Vec::new();
    let mut record = vec![0; LONGEST_MESSAGE];
    for _ in 0..MOST_MESSAGES {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(read) => errors.extend(record.get(..read).and_then(parse)),
            // The kernel has overwritten the next message meanwhile: the following one is the oldest that is left.
            Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {}
            Err(_) => break,
        }
    }
    for error in &mut errors {
        error.device = number(&error.bus);
    }
    errors
}

/// `4,1234,53428994,-;NVRM: Xid ...`: priority, number, microseconds since the machine began; what follows a line's end describes it. The
/// kernel's own have a priority below eight: what programs write into the log has never.
fn parse(record: &[u8]) -> Option<DriverError> {
    let text = String::from_utf8_lossy(record);
    let (head, message) = text.split_once(';')?;
    let mut numbers = head.split(',');
    numbers.next()?.parse::<u32>().ok().filter(|priority| *priority < 8)?;
    let at = numbers.nth(1)?.parse::<u64>().ok()?;
    DriverError::parse(message.lines().next()?, at / 1000)
}

/// The number of the device file of the GPU at this place, which the log has without the function behind it: `0000:65:00`.
fn number(bus: &str) -> Option<u32> {
    let folders = std::fs::read_dir(DEVICES).ok()?.flatten().take(MOST_GPUS);
    let mut own = folders.filter(|folder| folder.file_name().to_str().is_some_and(|name| name.starts_with(bus)));
    let mut text = String::new();
    File::open(own.next()?.path().join("information"))
        .ok()?
        .take(LONGEST_MESSAGE as u64)
        .read_to_string(&mut text)
        .ok()?;
    text.lines().find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_time_and_a_message() {
        let record = b"4,900,53428994,-;NVRM: Xid (PCI:0000:00:06): 43, pid=608, name=kernels, channel 0x0000000a\n SUBSYSTEM=pci\n";
        let found = parse(record).expect("an error");
        assert_eq!((found.at_ms, found.number, found.pid), (53_428, 43, Some(608)));
        for other in
            [&b""[..], b"6,1,2,-;usb 1-1: new device\n", b"x;NVRM: Xid (PCI:0): 1", b"1,2;NVRM: Xid (PCI:0): 1"]
        {
            assert_eq!(parse(other), None);
        }
    }
}
