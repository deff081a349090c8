/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Registers of sleeping threads, read without waking them, and what /proc says of each in four files: a BPF task iterator (Linux 5.15
 * and later).
 *
 * In: the map `wanted` with the process ids to tell of, as the reader's own PID namespace has them, each with 1 where it is to be told
 * which functions of the kernel its threads are in. Out: for each of
 * their threads one `struct record`, written to the iterator's file; `iterator.rs` reads it. It changes nothing.
 *
 * Built by scripts/check/bpf-object into an object for each machine (with ON_AARCH64 for that one), which are checked in: no
 * compiler is needed where lockscope runs. No kernel header is used: of the kernel's structures only the fields that are read are declared, and
 * where they lie is found in the running kernel's type information when the program is loaded (CO-RE relocations).
 * The helpers needed are given to programs with a GPL-compatible licence only.
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#define SECTION(name) __attribute__((section(name), used))
#define FROM_KERNEL __attribute__((preserve_access_index))

struct seq_file;
struct task_struct;

/* Numbers of helpers: include/uapi/linux/bpf.h, part of the kernel's stable interface. */
static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const seq_write)(struct seq_file *file, const void *data, u32 length) = (void *)127;
static struct task_struct *(*const get_current_task_btf)(void) = (void *)158;
static long (*const get_task_stack)(struct task_struct *task, void *to, u32 size, u64 flags) = (void *)141;
static long (*const task_pt_regs)(struct task_struct *task) = (void *)175;

struct upid {
	s32 nr;
} FROM_KERNEL;

struct pid {
	u32 level;
	struct upid numbers[1];
} FROM_KERNEL;

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
} FROM_KERNEL;

struct sched_info {
	unsigned long pcount;
} FROM_KERNEL;

struct thread_info {
	u32 cpu;
} FROM_KERNEL;

#ifdef ON_AARCH64
struct thread_struct {
	struct {
		u64 tp_value;
	} uw;
} FROM_KERNEL;

struct user_pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
} FROM_KERNEL;

struct pt_regs {
	struct user_pt_regs user_regs;
	u64 orig_x0;
	s32 syscallno;
} FROM_KERNEL;

/* As in the kernel's `user_pt_regs`; the first argument, the number of the system call or -1, the thread pointer. */
#define REGISTERS (34 + 3)
#else
struct thread_struct {
	u64 fsbase;
	u64 gsbase;
} FROM_KERNEL;

struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
} FROM_KERNEL;

/* As in the kernel's `user_regs_struct`, without the four segment registers at its end. */
#define REGISTERS 23
#endif

#define NAME 16

struct task_struct {
	struct thread_info thread_info;
	u32 __state;
	u32 ptrace;
	s32 on_cpu;
	/* Before Linux 5.16; then it is in `thread_info`. */
	u32 cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	u64 start_boottime;
	char comm[NAME];
	struct pid *thread_pid;
	struct task_struct *group_leader;
	u64 nvcsw;
	u64 nivcsw;
	struct thread_struct thread;
} FROM_KERNEL;

struct bpf_iter_meta {
	struct seq_file *seq;
} FROM_KERNEL;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} FROM_KERNEL;

/* Enough to tell apart where threads sleep: up to six are the scheduler's and a lock's. */
#define CALLS 8

/* As `iterator.rs` reads it: 8 words of 4 bytes, the name, then 8 bytes each. */
struct record {
	s32 process;
	s32 thread;
	u32 state;
	u32 on_cpu;
	/* Its id in its innermost PID namespace. */
	s32 innermost;
	/* Flags; 0 for no tracer. */
	u32 traced;
	/* What it last ran on; -1 where the kernel does not tell. */
	s32 processor;
	u32 unused;
	char name[NAME];
	u64 voluntary;
	u64 involuntary;
	u64 exec_start;
	/* Nanoseconds after boot. */
	u64 started;
	/* Nanoseconds of a processor that it has used, and how often it got one. */
	u64 used;
	u64 turns;
};

/* What follows it, first the one, then the other: a program has 512 bytes for its variables. */
union part {
	u64 registers[REGISTERS];
	/* Where the task is in the kernel, innermost first; 0 behind the last, or where that is not told. */
	u64 calls[CALLS];
};

struct {
	int (*type)[1]; /* BPF_MAP_TYPE_HASH */
	s32 *key;
	u8 *value;
	int (*max_entries)[64]; /* Replaced by the number of processes at load. */
} wanted SECTION(".maps");

char LICENSE[] SECTION("license") = "Dual MIT/GPL";

/* A field of a structure of the kernel. Pointers are read in this way only: of one that is read like a variable the verifier wants to
 * know whether it may be trusted, and goes through all types of the kernel for its name (a millisecond each, Linux 6.18). */
#define READ(to, field) probe_read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(field)))

/* The id of a task in the PID namespace at `level`; 0 for one that has none there, or none any more. */
static __attribute__((always_inline)) s32 id_at(struct task_struct *task, u32 level)
{
	struct pid *pid = 0;
	u32 deepest = 0;
	s32 id = 0;

	if (READ(pid, task->thread_pid) || !pid || READ(deepest, pid->level) || deepest < level)
		return 0;
	/* The verifier takes no variable index into a structure of the kernel. */
	const char *numbers = __builtin_preserve_access_index((const char *)&pid->numbers[0].nr);
	u64 size = __builtin_preserve_type_info(*(struct upid *)0, 1);
	if (probe_read_kernel(&id, sizeof(id), numbers + size * level))
		return 0;
	return id;
}

/* The same in the task's innermost namespace. */
static __attribute__((always_inline)) s32 innermost_id(struct task_struct *task)
{
	struct pid *pid = 0;
	u32 deepest = 0;

	if (READ(pid, task->thread_pid) || !pid || READ(deepest, pid->level))
		return 0;
	return id_at(task, deepest);
}

/* The processor that a task last ran on. */
static __attribute__((always_inline)) s32 processor_of(struct task_struct *task)
{
	if (__builtin_preserve_field_info(task->cpu, 2))
		return task->cpu;
	return __builtin_preserve_field_info(task->thread_info.cpu, 2) ? (s32)task->thread_info.cpu : -1;
}

SECTION("iter/task")
int task_registers(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	if (!task)
		return 0;
	struct task_struct *leader = 0;
	struct task_struct *reader = get_current_task_btf();
	struct pid *own = 0;
	u32 level = 0;
	if (READ(leader, task->group_leader) || !leader || !reader)
		return 0;
	if (READ(own, reader->thread_pid) || !own || READ(level, own->level))
		return 0;
	s32 process = id_at(leader, level);
	if (!process)
		return 0;
	const u8 *asked = map_lookup_elem(&wanted, &process);
	if (!asked)
		return 0;
	const u8 with_calls = *asked;
	struct pt_regs *registers = (struct pt_regs *)task_pt_regs(task);
	if (!registers)
		return 0;

	struct record record = {0};
	record.process = process;
	record.thread = id_at(task, level);
	if (!record.thread)
		return 0;
	record.state = task->__state;
	/* A kernel for one processor has no such field, and no other thread than the reader's runs there. */
	record.on_cpu = __builtin_preserve_field_info(task->on_cpu, 2) ? task->on_cpu : 0;
	record.innermost = innermost_id(task);
	record.traced = task->ptrace;
	record.processor = processor_of(task);
	READ(record.name, task->comm);
	record.voluntary = task->nvcsw;
	record.involuntary = task->nivcsw;
	record.exec_start = task->se.exec_start;
	record.started = task->start_boottime;
	record.used = task->se.sum_exec_runtime;
	/* A kernel without CONFIG_SCHED_INFO has none; its /proc has no `schedstat` either. */
	record.turns = __builtin_preserve_field_info(task->sched_info.pcount, 2) ? task->sched_info.pcount : 0;

	union part part = {0};
#ifdef ON_AARCH64
	s32 call = -1;
	if (probe_read_kernel(part.registers, 34 * sizeof(u64), __builtin_preserve_access_index(&registers->user_regs)) ||
	    READ(part.registers[34], registers->orig_x0) || READ(call, registers->syscallno) ||
	    READ(part.registers[36], task->thread.uw.tp_value))
		return 0;
	part.registers[35] = (u64)(long long)call;
#else
	u64 *to = part.registers;
	*to++ = registers->r15;
	*to++ = registers->r14;
	*to++ = registers->r13;
	*to++ = registers->r12;
	*to++ = registers->bp;
	*to++ = registers->bx;
	*to++ = registers->r11;
	*to++ = registers->r10;
	*to++ = registers->r9;
	*to++ = registers->r8;
	*to++ = registers->ax;
	*to++ = registers->cx;
	*to++ = registers->dx;
	*to++ = registers->si;
	*to++ = registers->di;
	*to++ = registers->orig_ax;
	*to++ = registers->ip;
	*to++ = registers->cs;
	*to++ = registers->flags;
	*to++ = registers->sp;
	*to++ = registers->ss;
	*to++ = task->thread.fsbase;
	*to++ = task->thread.gsbase;
#endif
	seq_write(context->meta->seq, &record, sizeof(record));
	seq_write(context->meta->seq, part.registers, sizeof(part.registers));

	/* It takes as long as all else. Of one that runs it is of no moment. */
	__builtin_memset(part.calls, 0, sizeof(part.calls));
	if (with_calls && record.state)
		get_task_stack(task, part.calls, sizeof(part.calls), 0);
	seq_write(context->meta->seq, part.calls, sizeof(part.calls));
	return 0;
}
