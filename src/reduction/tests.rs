use std::collections::BTreeSet;

use super::*;

/// Small graphs by a seed, each node with one of the four rules.
fn random(seed: u64) -> Vec<(u8, Vec<usize>)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let count = 1 + next(9);
    (0..count)
        .map(|_| {
            let kind = [0, 1, 2, 2, 2, 3, 3, 3][next(8)];
            let causes = (0..next(4)).map(|_| next(count)).collect();
            (kind, causes)
        })
        .collect()
}

fn reduction(graph: &[(u8, Vec<usize>)]) -> Reduction<usize> {
    let mut made = Reduction::default();
    for (node, (kind, causes)) in graph.iter().enumerate() {
        let causes = causes.iter().map(|cause| made.node(*cause)).collect();
        let rule = [Rule::Never, Rule::Always, Rule::Any(causes), Rule::All(vec![])][*kind as usize % 4].clone();
        let rule = if *kind == 3 { all(&mut made, &graph[node].1) } else { rule };
        made.set(node, rule);
    }
    made
}

fn all(made: &mut Reduction<usize>, causes: &[usize]) -> Rule {
    Rule::All(causes.iter().map(|cause| made.node(*cause)).collect())
}

/// The same by definition: apply every rule until nothing changes.
fn by_definition(graph: &[(u8, Vec<usize>)], first: &[bool]) -> Vec<bool> {
    let given: Vec<bool> = first.to_vec();
    let is_least = !first.iter().all(|one| *one);
    let mut blocked = given.clone();
    loop {
        let next: Vec<bool> = graph
            .iter()
            .enumerate()
            .map(|(node, (kind, causes))| {
                let rule = match kind {
                    0 => false,
                    1 => true,
                    2 => causes.iter().any(|cause| blocked[*cause]),
                    _ => causes.iter().all(|cause| blocked[*cause]),
                };
                if is_least { rule || given[node] } else { rule && blocked[node] }
            })
            .collect();
        if next == blocked {
            return blocked;
        }
        blocked = next;
    }
}

#[test]
fn both_sets_are_those_of_the_definition() {
    for seed in 1..4000 {
        let graph = random(seed);
        let names = |blocked: &[bool]| -> BTreeSet<usize> { (0..graph.len()).filter(|node| blocked[*node]).collect() };
        let greatest: BTreeSet<usize> = reduction(&graph).greatest().into_nodes().collect();
        assert_eq!(greatest, names(&by_definition(&graph, &vec![true; graph.len()])), "{graph:?}");
        if graph.len() > 1 {
            let mut given = vec![false; graph.len()];
            given[0] = true;
            let least: BTreeSet<usize> = reduction(&graph).least([0]).into_nodes().collect();
            assert_eq!(least, names(&by_definition(&graph, &given)), "{graph:?}");
        }
    }
}
