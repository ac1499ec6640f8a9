// Which CPUs this process may use, and how many threads that suggests.
#pragma once

namespace tessera {

// The number of threads of a session that names none: TESSERA_NUM_THREADS, else OMP_NUM_THREADS (of a list, the first
// number), else usable_cpus(). A variable that is not a whole number in 1 .. ThreadPool::kMaxThreads is passed over.
int default_num_threads();

// CPUs in the calling thread's affinity mask, or the cgroup's CPU limit (rounded up) if that is less. At least 1.
int usable_cpus();

// The number in `text`, blanks around it allowed; 0 if it is null, anything else, or out of range. With `list`, what
// follows a first comma is not looked at.
int parse_thread_count(const char* text, bool list);

// The smallest CPU limit (cpu.max of cgroup v2, cpu.cfs_quota_us of v1), rounded up, on the way from this process's
// cgroup to the root; 0 when there is none. `membership_file` is /proc/self/cgroup and `mount_root` /sys/fs/cgroup;
// tests give others.
int cgroup_cpu_limit(const char* membership_file, const char* mount_root);

// Whether TESSERA_BIND_THREADS is 1.
bool binding_wanted();

// Binds the calling thread to one CPU of its affinity mask: the `index`-th, counted round. The thread that calls a
// run is never bound; index 0 is left to it.
void bind_this_thread(int index);

// Moves the calling thread to some other CPU of its affinity mask, if it has another; the mask is the same afterwards.
void leave_cpu(int cpu);

}  // namespace tessera
