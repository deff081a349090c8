//! Suites that test locks have deadlocks that they end themselves, by an alarm, a watchdog, a limit of time on a child. Each of them
//! ends under `lockscope run` as it ends alone.

use std::process::{Child, Command, Stdio};

use crate::harness::{compile, lockscope, testdata};

fn spawn(command: &mut Command) -> Child {
    command.env_remove("LOCKSCOPE").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

#[test]
fn a_hang_that_its_own_program_ends_is_left_to_it() {
    let program = compile("hostile/wanted_hang.c", "wanted_hang", &[]).display().to_string();
    let script = testdata("hostile/wanted_hang.py").display().to_string();
    let ways = "alarm itimer timer jump dog cpu child wait alarmwait third timeoutcmd".split(' ');
    let mut commands: Vec<Vec<&str>> = ways.map(|way| vec![program.as_str(), way]).collect();
    let python = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if python {
        let ways = "run alarm mp lock_alarm faulthandler".split(' ');
        commands.extend(ways.map(|way| vec!["python3", script.as_str(), way]));
    } else {
        crate::harness::skipped!("no python3");
    }
    // Side by side: they sleep for most of the time.
    let started: Vec<_> = commands
        .iter()
        .map(|words| {
            let (alone, watched) = (&mut Command::new(words[0]), &mut lockscope());
            (spawn(alone.args(&words[1..])), spawn(watched.args(["run", "--"]).args(words)))
        })
        .collect();
    for ((alone, watched), words) in started.into_iter().zip(&commands) {
        let alone = alone.wait_with_output().expect("ends").status.code();
        let watched = watched.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&watched.stderr);
        assert_eq!(watched.status.code(), alone, "{words:?}: {said}");
    }
}

/// The same deadlocks, which nobody ends.
#[test]
fn a_hang_that_nobody_ends_is_ended() {
    let program = compile("hostile/wanted_hang.c", "wanted_hang", &[]).display().to_string();
    let output = spawn(lockscope().args(["run", "--", &program, "dead"])).wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(124), "{}", String::from_utf8_lossy(&output.stderr));
}
