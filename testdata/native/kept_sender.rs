//! The thread that receives keeps a sender itself, so that the channel never ends.
use std::io::Write;
use std::sync::mpsc::channel;

fn main() {
    let (sender, receiver) = channel::<u32>();
    let other = sender.clone();
    let producer = std::thread::spawn(move || (0..3).try_for_each(|number| other.send(number)));
    producer.join().unwrap().unwrap();
    println!("READY pids={}", std::process::id());
    std::io::stdout().flush().unwrap();
    let sum: u32 = receiver.iter().sum();
    drop(sender);
    println!("{sum}");
}
