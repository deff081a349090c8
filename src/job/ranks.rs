//! Numbers of ranks, for people.
//!
//! In: numbers. Out: `0-2,5`.

/// `0-2,5`: each number once, in order.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut sorted: Vec<u32> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match spans.last_mut() {
            Some(last) if number <= last.1.saturating_add(1) => last.1 = number,
            _ => spans.push((number, number)),
        }
    }
    let span = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    spans.iter().map(span).collect::<Vec<_>>().join(",")
}

/// "rank 3", "ranks 0-2,5".
pub(super) fn named(numbers: &[u32]) -> String {
    format!("{} {}", if numbers.len() == 1 { "rank" } else { "ranks" }, ranges(numbers.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_told_together() {
        assert_eq!(ranges([2, 0, 1, 5, 5]), "0-2,5");
        assert_eq!(ranges([u32::MAX, u32::MAX - 1]), "4294967294-4294967295");
        assert_eq!(ranges([]), "");
        assert_eq!((named(&[3]), named(&[1, 2])), ("rank 3".to_owned(), "ranks 1-2".to_owned()));
    }
}
