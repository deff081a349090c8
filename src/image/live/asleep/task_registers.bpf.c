/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Registers of sleeping threads, read without waking them: a BPF task iterator (Linux 5.15 and later).
 *
 * In: the map `wanted` with the process ids to tell of, as the reader's own PID namespace has them. Out: for each of
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

struct task_struct {
	u32 __state;
	s32 on_cpu;
	struct sched_entity se;
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

/* As `iterator.rs` reads it: 4 words of 4 bytes, then 8 bytes each. */
struct record {
	s32 process;
	s32 thread;
	u32 state;
	u32 on_cpu;
	u64 voluntary;
	u64 involuntary;
	u64 exec_start;
	u64 registers[REGISTERS];
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
	if (!process || !map_lookup_elem(&wanted, &process))
		return 0;
	struct pt_regs *registers = (struct pt_regs *)task_pt_regs(task);
	if (!registers)
		return 0;

	struct record record = {
		.process = process,
		.thread = id_at(task, level),
		.state = task->__state,
		/* A kernel for one processor has no such field, and no other thread than the reader's runs there. */
		.on_cpu = __builtin_preserve_field_info(task->on_cpu, 2) ? task->on_cpu : 0,
		.voluntary = task->nvcsw,
		.involuntary = task->nivcsw,
		.exec_start = task->se.exec_start,
#ifndef ON_AARCH64
		.registers = {
			registers->r15, registers->r14, registers->r13, registers->r12, registers->bp, registers->bx,
			registers->r11, registers->r10, registers->r9, registers->r8, registers->ax, registers->cx,
			registers->dx, registers->si, registers->di, registers->orig_ax, registers->ip, registers->cs,
			registers->flags, registers->sp, registers->ss, task->thread.fsbase, task->thread.gsbase,
		},
#endif
	};
#ifdef ON_AARCH64
	s32 call = -1;
	if (probe_read_kernel(record.registers, 34 * sizeof(u64), __builtin_preserve_access_index(&registers->user_regs)) ||
	    READ(record.registers[34], registers->orig_x0) || READ(call, registers->syscallno) ||
	    READ(record.registers[36], task->thread.uw.tp_value))
		return 0;
	record.registers[35] = (u64)(long long)call;
#endif
	if (record.thread)
		seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}
