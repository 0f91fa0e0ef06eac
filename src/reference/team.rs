//! Threads that run one function together and meet at barriers.
//!
//! A training step has some fifty meeting points (each tensor's exponent must be known before a
//! product uses it), a few microseconds of work apart in small models. Threads spin briefly,
//! then sleep: a step costs no system call on an idle machine, and on a busy one a waiting thread
//! leaves its processor to the one it waits for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Turns of spinning (some 50 ns each) before a waiting thread sleeps.
const SPINS: u32 = 2_000;

/// A reusable meeting point of a fixed number of threads.
pub struct SpinBarrier {
    members: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
}

impl SpinBarrier {
    fn new(members: usize) -> Self {
        Self {
            members,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Returns when every member has arrived; what each wrote before is visible to all after.
    pub fn wait(&self) {
        if self.members == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            // Sequentially consistent, as in `sleep`: either this thread sees the sleeper, or the
            // sleeper sees the new generation.
            self.generation
                .store(generation.wrapping_add(1), Ordering::SeqCst);
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                drop(self.bed.lock().unwrap_or_else(|e| e.into_inner()));
                self.wake.notify_all();
            }
            return;
        }
        for _ in 0..SPINS {
            if self.generation.load(Ordering::Acquire) != generation {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleep(generation);
    }

    fn sleep(&self, generation: usize) {
        let mut bed = self.bed.lock().unwrap_or_else(|e| e.into_inner());
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.generation.load(Ordering::SeqCst) == generation {
            bed = self.wake.wait(bed).unwrap_or_else(|e| e.into_inner());
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a member knows about itself.
pub struct Member<'a> {
    pub index: usize,
    pub count: usize,
    barrier: &'a SpinBarrier,
}

impl Member<'_> {
    /// Meets the other members.
    pub fn meet(&self) {
        self.barrier.wait();
    }

    /// This member's share of `n` items, in whole multiples of `unit` where possible.
    pub fn share(&self, n: usize, unit: usize) -> std::ops::Range<usize> {
        let units = n.div_ceil(unit);
        let bound = |i: usize| (units * i / self.count * unit).min(n);
        bound(self.index)..bound(self.index + 1)
    }
}

type Job = &'static (dyn Fn(&Member) + Sync);

struct Post {
    job: Option<Job>,
    number: usize,
    closing: bool,
}

struct Shared {
    post: Mutex<Post>,
    changed: Condvar,
    /// The post's number, for workers that spin before they sleep.
    posted: AtomicUsize,
    /// Workers that have not finished the job, and what is signalled when none is left.
    running: AtomicUsize,
    done: Condvar,
    barrier: SpinBarrier,
}

/// A team of `count` threads, the caller being its member 0.
pub struct Team {
    count: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    pub fn new(count: usize) -> Self {
        let count = count.max(1);
        let shared = Arc::new(Shared {
            post: Mutex::new(Post {
                job: None,
                number: 0,
                closing: false,
            }),
            changed: Condvar::new(),
            posted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            done: Condvar::new(),
            barrier: SpinBarrier::new(count),
        });
        let workers = (1..count)
            .map(|index| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || work(&shared, index, count))
            })
            .collect();
        Self {
            count,
            shared,
            workers,
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `job` once on every member and returns when all are done.
    pub fn run<'a>(&mut self, job: &'a (dyn Fn(&Member) + Sync)) {
        let member = Member {
            index: 0,
            count: self.count,
            barrier: &self.shared.barrier,
        };
        if self.count == 1 {
            job(&member);
            return;
        }
        // SAFETY: this function waits below until no worker uses the job any more, also when a
        // member panics (a panicking worker still reports, and the caller's panic aborts in `Wait`).
        let lasting: Job = unsafe { std::mem::transmute::<&'a (dyn Fn(&Member) + Sync), Job>(job) };
        {
            let mut post = self
                .shared
                .post
                .lock()
                .expect("no member panics while holding the lock");
            post.job = Some(lasting);
            post.number += 1;
            self.shared.running.store(self.count - 1, Ordering::Release);
            self.shared.posted.store(post.number, Ordering::Release);
        }
        self.shared.changed.notify_all();
        let wait = Wait(&self.shared);
        job(&member);
        drop(wait);
    }
}

/// Waits for the workers, even while unwinding.
struct Wait<'a>(&'a Shared);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The others may wait for this member at a barrier for ever.
            std::process::abort();
        }
        // Workers end within a barrier's time of each other, so this seldom sleeps.
        for _ in 0..SPINS {
            if self.0.running.load(Ordering::Acquire) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let lock = self.0.post.lock();
        let mut post = lock.expect("no member panics while holding the lock");
        while self.0.running.load(Ordering::Acquire) > 0 {
            let woken = self.0.done.wait(post);
            post = woken.expect("no member panics while holding the lock");
        }
        post.job = None;
    }
}

fn work(shared: &Shared, index: usize, count: usize) {
    let mut done = 0;
    loop {
        // The next job usually follows at once; waking a sleeping thread would take longer.
        let mut turns = 0;
        while turns < SPINS && shared.posted.load(Ordering::Acquire) == done {
            turns += 1;
            std::hint::spin_loop();
        }
        let job = {
            let mut post = shared
                .post
                .lock()
                .expect("no member panics while holding the lock");
            loop {
                if post.closing {
                    return;
                }
                match post.job {
                    Some(job) if post.number != done => {
                        done = post.number;
                        break job;
                    }
                    _ => {
                        post = shared
                            .changed
                            .wait(post)
                            .expect("no member panics while holding the lock");
                    }
                }
            }
        };
        let member = Member {
            index,
            count,
            barrier: &shared.barrier,
        };
        let guard = Report(shared);
        job(&member);
        drop(guard);
    }
}

/// Counts a worker as finished, and notes a panic.
struct Report<'a>(&'a Shared);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The other members may wait for this one at a barrier for ever.
            std::process::abort();
        }
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Under the lock, so that the signal cannot fall between the caller's look and its sleep.
            let lock = self.0.post.lock();
            let _post = lock.expect("no member panics while holding the lock");
            self.0.done.notify_one();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if let Ok(mut post) = self.shared.post.lock() {
            post.closing = true;
        }
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A worker cannot end by panic (it aborts), so there is nothing to report.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_meet_and_see_each_other() {
        for count in [1, 2, 3] {
            let mut team = Team::new(count);
            for _ in 0..50 {
                let cells: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                team.run(&|member| {
                    for round in 1..20 {
                        cells[member.index].store(round, Ordering::Relaxed);
                        member.meet();
                        assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == round));
                        member.meet();
                    }
                });
            }
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        let barrier = SpinBarrier::new(3);
        for n in [0, 1, 7, 88, 264] {
            let mut next = 0;
            for index in 0..3 {
                let share = Member {
                    index,
                    count: 3,
                    barrier: &barrier,
                }
                .share(n, 4);
                assert_eq!(share.start, next);
                next = share.end;
            }
            assert_eq!(next, n);
        }
    }
}
