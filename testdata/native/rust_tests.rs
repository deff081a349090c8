// Tests of Rust's libtest, for rustc --test: one that waits for a message that nobody sends, and its like that is sent one late.
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

unsafe extern "C" {
    fn alarm(seconds: u32) -> u32;
}

#[test]
fn waits_for_ever() {
    unsafe { alarm(120) };
    let (sender, receiver) = mpsc::channel::<u8>();
    receiver.recv().unwrap();
    drop(sender);
}

#[test]
fn waits_for_a_while() {
    unsafe { alarm(120) };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(100));
        sender.send(1u8)
    });
    println!("READY pids={}", std::process::id());
    receiver.recv().unwrap();
}
