//! Threads of a picture that do the same as each other, each with a thing of its own, as one box: the 32 threads of a pool that each
//! wait for a task of their own behind them in the queue.
//!
//! In: a [`Picture`]. Out: the same with fewer boxes, which say how many they are. A ring of equal threads stays a ring: who stands
//! before whom in it is what it shows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::picture::{Picture, Shape};

/// So many stay boxes of their own.
const FEW: usize = 3;

/// The common features of threads that each wait for a resource of its own: the process, the resources' common name,
/// the link's text.
type Alike = (String, String, String, String);

impl Picture {
    /// Join threads that each wait for one thing, which nobody else waits for, and that thread alone, or all of them, can give.
    pub(super) fn join_pools(&mut self) {
        let mut gone: HashMap<String, String> = HashMap::new();
        let mut more: HashMap<String, usize> = HashMap::new();
        for pairs in self.pools() {
            let Some(((thread, thing), rest)) = pairs.split_first() else { continue };
            for (other, others) in rest {
                gone.insert(other.clone(), thread.clone());
                gone.insert(others.clone(), thing.clone());
            }
            more.extend([(thread.clone(), rest.len()), (thing.clone(), rest.len())]);
        }
        if gone.is_empty() {
            return;
        }
        for link in &mut self.links {
            for end in [&mut link.from, &mut link.to] {
                if let Some(kept) = gone.get(end) {
                    end.clone_from(kept);
                }
            }
        }
        // If links are equal, the one of a cycle stays.
        self.links.sort_by_key(|link| !link.red);
        let mut seen = HashSet::new();
        self.links.retain(|link| seen.insert((link.from.clone(), link.to.clone(), link.label.clone())));
        for cluster in &mut self.clusters {
            cluster.nodes.retain(|node| !gone.contains_key(&node.id));
            for node in &mut cluster.nodes {
                let Some(more) = more.get(&node.id) else { continue };
                node.label = match node.shape {
                    Shape::Thread => format!("{} and {more} more threads", node.label),
                    _ => format!("{} and {more} more", node.general),
                };
            }
        }
    }

    /// The threads of each pool with what each waits for, in the order of their names.
    fn pools(&self) -> Vec<Vec<(String, String)>> {
        let mut waits: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut waiters: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        let mut holders: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        let nodes: HashMap<&str, _> = self
            .clusters
            .iter()
            .flat_map(|cluster| cluster.nodes.iter().map(move |node| (node.id.as_str(), (&cluster.id, node))))
            .collect();
        let shape = |id: &str| nodes.get(id).map(|(_, node)| node.shape);
        for link in &self.links {
            match (shape(&link.from), shape(&link.to)) {
                (Some(Shape::Thread), Some(Shape::Resource)) => {
                    waits.entry(&link.from).or_default().push(&link.to);
                    waiters.entry(&link.to).or_default().insert(&link.from);
                }
                (Some(Shape::Resource), Some(Shape::Thread)) => {
                    holders.entry(&link.from).or_default().insert(&link.to);
                }
                _ => {}
            }
        }
        let mut alike: BTreeMap<Alike, Vec<(&str, &str)>> = BTreeMap::new();
        for link in &self.links {
            let (thread, thing) = (link.from.as_str(), link.to.as_str());
            let is_own = waits.get(thread).is_some_and(|things| things.as_slice() == [thing])
                && waiters.get(thing).is_some_and(|waiters| waiters.len() == 1);
            let Some((cluster, node)) = nodes.get(thing).filter(|_| is_own) else { continue };
            let key = (cluster.to_string(), node.general.clone(), link.words.clone(), link.label.clone());
            alike.entry(key).or_default().push((thread, thing));
        }
        let mut pools: Vec<Vec<(String, String)>> = Vec::new();
        for pairs in alike.into_values() {
            let all: BTreeSet<&str> = pairs.iter().map(|(thread, _)| *thread).collect();
            let given_by = |thing: &str| holders.get(thing).cloned().unwrap_or_default();
            let by_itself = |(thread, thing): &&(&str, &str)| given_by(thing) == BTreeSet::from([*thread]);
            let by_all = |(_, thing): &&(&str, &str)| given_by(thing) == all;
            let count = pairs.len();
            if count > FEW
                && (pairs.iter().filter(by_itself).count() == count || pairs.iter().filter(by_all).count() == count)
            {
                let mut pairs: Vec<(String, String)> =
                    pairs.iter().map(|(thread, thing)| ((*thread).to_owned(), (*thing).to_owned())).collect();
                pairs.sort_by(|one, other| (one.0.len(), &one.0).cmp(&(other.0.len(), &other.0)));
                pools.push(pairs);
            }
        }
        pools
    }
}

#[cfg(test)]
mod tests {
    use crate::render::picture::Picture;
    use crate::render::text::tests::{empty, seed};
    use crate::report::{Hold, Report, Thread, Wait};

    /// Threads that each wait for a thing of its own, which each of `givers` of it can give.
    fn pool(count: usize, givers: impl Fn(usize) -> Vec<usize>) -> Report {
        let model = seed();
        let mut report = empty();
        let mut process = model.processes[0].clone();
        process.threads = (0..count)
            .map(|number| Thread {
                tid: 1000 + number as i32,
                frames: Vec::new(),
                ..model.processes[0].threads[0].clone()
            })
            .collect();
        let id = process.id.clone();
        report.processes.push(process);
        for number in 0..count {
            let mut resource = model.resources[0].clone();
            (resource.id, resource.address) = (format!("r{number}"), Some(format!("0x{number:x}000")));
            let resource_id = resource.id.clone();
            report.resources.push(resource);
            let tid = Some(1000 + number as i32);
            let of = (id.clone(), resource_id);
            report.waits.push(Wait { process: of.0.clone(), tid, resource: of.1.clone(), ..model.waits[0].clone() });
            for giver in givers(number) {
                let tid = Some(1000 + giver as i32);
                report.holds.push(Hold {
                    process: of.0.clone(),
                    tid,
                    resource: of.1.clone(),
                    ..model.holds[0].clone()
                });
            }
        }
        report
    }

    fn boxes(report: &Report) -> (usize, usize) {
        let (picture, _) = Picture::of(report).reduced(60);
        (picture.nodes().count(), picture.links.len())
    }

    #[test]
    fn a_pool_is_one_box_and_a_ring_stays_a_ring() {
        assert_eq!(boxes(&pool(32, |number| vec![number])), (2, 2), "each could do its own");
        assert_eq!(boxes(&pool(8, |_| (0..8).collect())), (2, 2), "each could do all");
        assert_eq!(boxes(&pool(3, |number| vec![number])), (6, 6), "few");
        assert_eq!(boxes(&pool(8, |number| vec![(number + 1) % 8])), (16, 16), "a ring");
    }
}
