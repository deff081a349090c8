//! Slurm's lists of nodes: `n[1-3,07],login,rack[0-1]node[01-10]`.
//!
//! In: the text, and for how many there is room. Out: the names, in its order (scontrol(1), "hostlist"; src/common/hostlist.c). Numbers
//! keep their zeros. A list that stands for more is cut, and what makes no sense is left out.

use crate::limits::job::{LONGEST_NODE_NAME, MOST_BRACKETS, MOST_PLACES};
use crate::limits::met;

/// The nodes of a list; `room` is for those of the whole file.
pub(super) fn nodes(text: &str, room: &mut usize) -> Vec<String> {
    let mut all = Vec::new();
    for part in parts(text).filter(|part| part.matches('[').count() <= MOST_BRACKETS) {
        // Each bracket makes of each name as many as it has numbers.
        let mut names = vec![String::new()];
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let Some((inside, beyond)) = after.split_once(']') else { break };
            names = multiplied(&names, before, inside, *room + 1);
            rest = beyond;
        }
        let full = names.into_iter().map(|name| name + rest);
        for name in full.filter(|name| !name.is_empty() && name.len() <= LONGEST_NODE_NAME && !name.contains('[')) {
            let Some(left) = room.checked_sub(1) else {
                met(MOST_PLACES, "lists of Slurm's nodes", "nodes");
                return all;
            };
            *room = left;
            all.push(name);
        }
    }
    all
}

/// The parts between commas that stand in no bracket.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.split(move |letter: char| {
        is_inside = (is_inside || letter == '[') && letter != ']';
        letter == ',' && !is_inside
    })
}

/// Each name with each of the numbers, `most` of them.
fn multiplied(names: &[String], before: &str, inside: &str, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    for name in names.iter().filter(|name| name.len() + before.len() <= LONGEST_NODE_NAME) {
        for range in inside.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let width = first.len();
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
            let left = most.saturating_sub(found.len());
            if width <= LONGEST_NODE_NAME {
                found.extend((first..=last).take(left).map(|number| format!("{name}{before}{number:0width$}")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        nodes(text, &mut 1000)
    }

    #[test]
    fn ranges_keep_their_zeros() {
        assert_eq!(all("n[1-3,07],login"), ["n1", "n2", "n3", "n07", "login"]);
        assert_eq!(all("rack[0-1]node[09-10]"), ["rack0node09", "rack0node10", "rack1node09", "rack1node10"]);
        assert_eq!(all("n[1-2]-ib"), ["n1-ib", "n2-ib"]);
        assert_eq!(all("one.example"), ["one.example"]);
    }

    #[test]
    fn what_makes_no_sense_is_left_out_and_what_never_ends_is_cut() {
        crate::limits::begin();
        for none in ["", ",,", "n[", "n[x-y]", "n[3-1]", "n[1-]", "n[99999999999]"] {
            assert_eq!(all(none), Vec::<String>::new(), "{none}");
        }
        assert_eq!(all(&"[0-9]".repeat(MOST_BRACKETS + 1)).len(), 0);
        assert_eq!(all(&format!("{}[0-9]", "x".repeat(LONGEST_NODE_NAME))).len(), 0);
        assert!(crate::limits::told().is_empty());
        for endless in ["n[0-4000000000]", "a[0-99]b[0-99]c[0-99]d[0-99]", "n[0-999],m[0-999]"] {
            assert_eq!(all(endless).len(), 1000, "{endless}");
        }
        assert!(crate::limits::told().iter().any(|met| met.what.contains("Slurm's nodes")));
    }
}
