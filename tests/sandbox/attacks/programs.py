"""Hostile programs. Each prints ESCAPED only if it got what it wanted, and the suite's expected output is ESCAPED.

So `accepted` means an escape or a forged verdict. Wrong output, an exception, a limit: the wall held.
"""

# ruff: noqa: E501  programs are data

HEAD = """
import ctypes, errno, os, signal, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def won(): os.write(1, b"ESCAPED\\n"); os._exit(0)
def syscall(*numbers):
    if libc.syscall(*numbers) >= 0: won()
"""

PROCESSES = {
    "fork": "os.fork(); won()",
    "fork_bomb": "while True: os.fork(); won()",
    "raw_fork": "ctypes.PyDLL(None).fork() >= 0 and won()",
    "vfork_syscall": "syscall(58)",
    "clone_without_thread": "syscall(56, 17, 0, 0, 0, 0)",
    "clone3": "syscall(435, ctypes.create_string_buffer(88), 88)",
    "posix_spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'true'], {}); won()",
    "subprocess": "import subprocess; subprocess.run(['true']); won()",
    "os_system": "os.system('true') == 0 and won()",
    "exec": "os.execv(sys.executable or '/usr/bin/python3', ['python3', '-c', 'print(\"ESCAPED\")'])",
    "execveat": "syscall(322, -100, b'/bin/true', None, None, 0)",
    "multiprocessing": "import multiprocessing as m; p = m.Process(target=won); p.start(); p.join()",
    "thread_bomb": """
threading.stack_size(1 << 16)
try:
    for i in range(100000): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
except BaseException: os._exit(1)
won()""",
    "setsid": "os.setsid(); won()",
    "setpgid": "os.setpgid(0, 0); won()",
    "fork_in_a_thread": "t = threading.Thread(target=lambda: (os.fork(), won())); t.start(); t.join()",
    "fork_in_a_signal_handler": "signal.signal(signal.SIGUSR1, lambda *a: (os.fork(), won())); os.kill(os.getpid(), signal.SIGUSR1)",
    "fork_at_exit": "import atexit; atexit.register(lambda: (os.fork(), won()))",
    "thread_in_a_new_namespace": "syscall(56, 0x10000 | 0x800 | 0x100 | 0x10000000, 0, 0, 0, 0)",
    "libc_system": "libc.system(b'true') == 0 and won()",
    "libc_posix_spawn": "libc.posix_spawn(ctypes.byref(ctypes.c_int()), b'/bin/true', None, None, (ctypes.c_char_p * 2)(b'true', None), None) == 0 and won()",
    "process_pool": "from concurrent.futures import ProcessPoolExecutor as P; P(1).submit(int).result(); won()",
    "daemon_double_fork": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); won()",
}
SIGNALS = {
    "kill_oneself": "os.kill(os.getpid(), 9); won()",
    "kill_own_thread": "syscall(234, os.getpid(), os.getpid(), 9)",
    "limit_own_cpu_time": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (0, 0)); won()",
    "limit_own_cpu_time_directly": "syscall(160, 0, struct.pack('QQ', 0, 0))",
    "kill_parent": "os.kill(os.getppid(), 9); won()",
    "kill_group": "os.kill(0, 9); won()",
    "kill_all": "os.kill(-1, 9); won()",
    "kill_init": "os.kill(1, 0); won()",
    "tkill": "syscall(200, os.getppid(), 9)",
    "sigqueue": "syscall(129, os.getppid(), 9, ctypes.create_string_buffer(128))",
    "pidfd_open_parent": "syscall(434, os.getppid(), 0)",
    "pidfd_send_signal": "syscall(424, 0, 9, None, 0)",
    "ignore_and_spin": "[signal.signal(s, signal.SIG_IGN) for s in range(1, 32) if s not in (9, 19)]\nwhile True: pass",
    "stop_oneself": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60); won()",
    "clear_parent_death_signal": "libc.prctl(1, 0, 0, 0, 0) == 0 and won()",
    "raise_own_limits": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6)); won()",
    "limits_of_parent": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1)); won()",
    "tgkill_parent": "syscall(234, os.getppid(), os.getppid(), 9)",
    "rt_tgsigqueueinfo": "syscall(297, os.getppid(), os.getppid(), 9, ctypes.create_string_buffer(128))",
    "timer_create": "syscall(222, 0, 0, ctypes.create_string_buffer(8))",
    "timerfd": "syscall(283, 1, 0)",
    "signalfd": "syscall(289, -1, ctypes.create_string_buffer(8), 8, 0)",
    "input_signals_parent": "import fcntl; fcntl.fcntl(0, 8, os.getppid()); won()",
    "lease_on_input": "import fcntl; fcntl.fcntl(0, 1024, 0); won()",
    "interval_timer_resets_the_clock": "signal.signal(signal.SIGPROF, lambda *a: None); signal.setitimer(signal.ITIMER_PROF, .01, .01)\nwhile True: pass",
    "realtime_scheduling": "syscall(144, 0, 1, struct.pack('i', 50))",
    "sched_setattr": "syscall(314, 0, struct.pack('IIQiIQQQ', 48, 0, 0, -10, 0, 0, 0, 0), 0)",
    "io_priority": "syscall(251, 1, 0, 1 << 13)",
    "more_processes_allowed": "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6)); won()",
    "bigger_files_allowed": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40)); won()",
    "renice": "os.setpriority(0, 0, -5); won()",
    "affinity_of_parent": "os.sched_setaffinity(os.getppid(), {0}); won()",
}
MEMORY = {
    "bytearray": "x = bytearray(3 << 30); won()",
    "growing_list": "x = []\nwhile True: x.append('a' * 10**6 + str(len(x)))",
    "mmap_private": "import mmap\nx = []\nfor i in range(40): m = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.write(b'a' * (64 << 20)); x.append(m)\nwon()",
    "mmap_shared": "import mmap\nx = []\nfor i in range(40): m = mmap.mmap(-1, 64 << 20); m.write(b'a' * (64 << 20)); x.append(m)\nwon()",
    "shared_pages_no_longer_mapped": """
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for _ in range(8):
    start = libc.mmap(None, 64 << 20, 3, 0x21, -1, 0)
    if start == ctypes.c_void_p(-1).value: os._exit(1)
    ctypes.memset(start, 1, 64 << 20); libc.munmap(start, (64 << 20) - 4096)
won()""",
    "shared_pages_given_back": "import mmap\nfor _ in range(8): m = mmap.mmap(-1, 64 << 20); m.write(b'a' * (64 << 20)); m.madvise(mmap.MADV_DONTNEED)\nwon()",
    "dev_zero_shared": "import mmap; mmap.mmap(os.open('/dev/zero', os.O_RDWR), 64 << 20).write(b'a'); won()",
    "memfd_secret": "syscall(447, 0)",
    "bigger_pipe": "import fcntl; fcntl.fcntl(os.pipe()[1], 1031, 1 << 20); won()",
    "vmsplice": "syscall(278, os.pipe()[1], ctypes.create_string_buffer(16), 1, 0)",
    "tee": "syscall(276, os.pipe()[0], os.pipe()[1], 1, 0)",
    "posix_queue": "syscall(240, b'x', 0o102, 0o600, None)",
    "semaphores": "syscall(64, 0, 250, 0o1600)",
    "map_output_and_grow": "import mmap; os.ftruncate(1, 2 << 20); won()",
    "stack": "def f(): f()\nsys.setrecursionlimit(10**9); threading.stack_size(600 << 20); t = threading.Thread(target=f); t.start(); t.join(); 1/0",
    "memfd": "fd = os.memfd_create('x'); os.write(fd, b'a' * (1 << 20)); won()",
    "shmget": "syscall(29, 0, 1 << 20, 0o1600)",
    "msgget": "syscall(68, 0, 0o1600)",
    "mlock": "syscall(149, ctypes.create_string_buffer(4096), 4096)",
    "big_integer": "x = 1 << (1 << 34); won()",
    "string_product": "x = 'a' * (1 << 33); won()",
    "pipes_full": "a = []\nfor i in range(4000):\n  r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'a' * 65536); a.append(r)\nwon()",
}
OUTPUT = {
    "flood": "while True: os.write(1, b'ESCAPED\\n' * 4096)",
    "flood_stderr": "while True: os.write(2, b'x' * 65536)",
    "sparse_output": "os.ftruncate(1, 1 << 40); won()",
    "fallocate_output": "os.posix_fallocate(1, 0, 1 << 33); won()",
    "close_all_then_wait": "os.closerange(0, 100)\nwhile True: pass",
    "closed_stdout": "os.close(1); print('ESCAPED')",
    "read_own_output_seeking_answers": "os.lseek(1, 0, 0); d = os.read(1, 100); d and won()",
    "reopen_input_for_writing": "open('/dev/stdin', 'r+b', 0).write(b'9'); won()",
    "reopen_output_of_server": "[open(f'/proc/self/fd/{fd}', 'wb', 0) for fd in range(3, 30)]; won()",
    "seal_output": "import fcntl; fcntl.fcntl(1, 1033, 0xf); won()",
    "server_object_in_frames": """
f = sys._getframe()
while f:
    for thing in list(f.f_locals.values()):
        if hasattr(thing, 'outlet'): os.write(thing.outlet, b'SPO1T' + bytes(80)); won()
    f = f.f_back""",
    "server_object_serves_again": """
import gc
f = sys._getframe()
while f:
    for thing in list(f.f_locals.values()):
        if hasattr(thing, 'serve'): thing.slots.clear(); thing.report(b'T', 1, 0, (0, 0, 0, 0, 0), 1, 2, 1 << 20); won()
    f = f.f_back""",
    "trace_outer_frames": """
def trace(frame, event, argument): return trace
f = sys._getframe().f_back
while f: f.f_trace = trace; f = f.f_back
sys.settrace(trace); sys.setprofile(lambda *a: None); print('ESCAPED'); sys.exit(5)""",
    "every_descriptor": """
for fd in range(3, 5000):
    try: os.write(fd, b'SPO1T' + b'\\0' * 200)
    except OSError: continue
    won()""",
    "forged_frame_on_stdout": "os.write(1, b'SPO1T' + bytes(80)); os._exit(0)",
    "proc_parent_descriptors": """
for fd in range(100):
    try: f = open(f'/proc/{os.getppid()}/fd/{fd}', 'wb', 0)
    except OSError: continue
    f.write(b'SPO1T'); won()""",
    "pidfd_getfd": "syscall(438, 0, 1, 0)",
}
FILES = {
    "etc_passwd": "open('/etc/passwd').read(); won()",
    "etc_shadow": "open('/etc/shadow').read(); won()",
    "list_root": "os.listdir('/'); won()",
    "list_tmp": "os.listdir('/tmp'); won()",
    "list_home": "os.listdir('/home'); won()",
    "proc_environ_of_parent": "open(f'/proc/{os.getppid()}/environ').read(); won()",
    "proc_mem_of_parent": "open(f'/proc/{os.getppid()}/mem', 'rb'); won()",
    "proc_own_mem": "open('/proc/self/mem', 'r+b'); won()",
    "proc_one": "open('/proc/1/cmdline').read(); won()",
    "proc_self_maps": "open('/proc/self/maps').read(); won()",
    "proc_self_environ": "open('/proc/self/environ').read(); won()",
    "proc_mounts": "open('/proc/mounts').read(); won()",
    "proc_self_root": "os.listdir('/proc/self/root/'); won()",
    "proc_all": "[open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc') if p.isdigit()]; won()",
    "sys_kernel": "open('/sys/kernel/vmcoreinfo').read(); won()",
    "kernel_log": "os.open('/dev/kmsg', os.O_RDONLY); won()",
    "devices": "[os.open(d, os.O_RDWR) for d in ('/dev/mem', '/dev/tty', '/dev/kvm', '/dev/fuse') if os.path.exists(d)] and won()",
    "docker_socket": "import socket; socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock'); won()",
    "installed_packages": "import docker; won()",
    "change_mode_of_input": "os.fchmod(0, 0); won()",
    "attribute_on_input": "os.setxattr(0, 'user.x', b'1'); won()",
    "times_of_input": "os.utime(0, (1, 1)); won()",
    "punch_hole_in_input": "libc.fallocate(0, 3, ctypes.c_long(0), ctypes.c_long(1)) == 0 and won()",
    "rename_library": "os.rename(os.__file__, os.__file__ + 'x'); won()",
    "hard_link": "os.link(os.__file__, '/tmp/spo_attack'); won()",
    "temporary_folder": "import tempfile; tempfile.mkdtemp(); won()",
    "temporary_files_without_end": "import tempfile; kept = [tempfile.TemporaryFile() for _ in range(100)]; won()",
    "large_temporary_file": "import tempfile; f = tempfile.TemporaryFile(); f.write(bytes(64 << 20)); f.flush(); won()",
    "write_tmp": "open('/tmp/x', 'w').write('a'); won()",
    "write_shm": "open('/dev/shm/x', 'w').write('a'); won()",
    "write_here": "open('x', 'w').write('a'); won()",
    "write_library": "open(os.__file__, 'a').write('a'); won()",
    "otmpfile": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR); won()",
    "unlink_library": "os.unlink(os.__file__); won()",
    "chmod_library": "os.chmod(os.__file__, 0o777); won()",
    "mkdir": "os.mkdir('/tmp/spo_attack'); won()",
    "symlink": "os.symlink('/etc/passwd', '/tmp/spo_attack'); won()",
    "mknod": "os.mknod('/tmp/spo_attack', 0o20666, 0x0101); won()",
    "lock_library": "import fcntl; fcntl.flock(os.open(os.__file__, 0), fcntl.LOCK_EX); won()",
    "posix_lock": "import fcntl; fcntl.lockf(os.open(os.__file__, 0), fcntl.LOCK_SH); won()",
    "chroot": "os.chroot('/'); won()",
    "open_by_handle": "syscall(304, 0, ctypes.create_string_buffer(128), 0)",
    "change_input": "os.lseek(0, 0, 0); os.write(0, b'9'); won()",
    "truncate_input": "os.ftruncate(0, 0); won()",
}
KERNEL = {
    "ptrace_parent": "syscall(101, 16, os.getppid(), 0, 0)",
    "ptrace_traceme": "syscall(101, 0, 0, 0, 0)",
    "process_vm_readv": "syscall(310, os.getppid(), ctypes.create_string_buffer(16), 0, ctypes.create_string_buffer(16), 0, 0)",
    "socket_inet": "import socket; socket.socket(); won()",
    "socket_unix": "import socket; socket.socket(socket.AF_UNIX); won()",
    "socketpair_of_datagrams": "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); won()",
    "socketpair_of_packets": "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); won()",
    "socketpair_of_the_network": "import socket; socket.socketpair(socket.AF_INET); won()",
    "connect_one_of_a_pair": "import socket; a, b = socket.socketpair(); a.connect('/run/systemd/journal/socket'); won()",
    "bind_one_of_a_pair": "import socket; a, b = socket.socketpair(); a.bind('\\0spo'); won()",
    "send_from_a_pair_to_another": "import socket; a, b = socket.socketpair(); a.sendto(b'x', '/dev/log'); won()",
    "send_urgent_data": "import socket; a, b = socket.socketpair(); a.send(b'x', socket.MSG_OOB); won()",
    "receive_urgent_data": "import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1, socket.MSG_PEEK); won()",
    "send_a_descriptor": "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); won()",
    "receive_a_descriptor": "import socket; a, b = socket.socketpair(); a.send(b'x'); socket.recv_fds(b, 1, 1); won()",
    "options_of_a_pair": "import socket; a, b = socket.socketpair(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30); won()",
    "sockets_without_end": "import socket\nkept = [socket.socketpair() for _ in range(2000)]\nwon()",
    "pipes_without_end": "kept = [os.pipe() for _ in range(2000)]; won()",
    "io_uring": "syscall(425, 8, ctypes.create_string_buffer(120))",
    "bpf": "syscall(321, 0, ctypes.create_string_buffer(128), 128)",
    "userfaultfd": "syscall(323, 1)",
    "perf_event": "syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "io_uring_enter": "syscall(426, 0, 1, 0, 0, None, 0)",
    "request_key": "syscall(249, b'user', b'x', None, -3)",
    "fanotify": "syscall(300, 0, 0)",
    "kexec": "syscall(246, 0, 0, 0, 0)",
    "init_module": "syscall(175, 0, 0, b'')",
    "swapoff": "syscall(168, b'/')",
    "iopl": "syscall(172, 3)",
    "modify_ldt": "syscall(154, 0, ctypes.create_string_buffer(16), 16)",
    "quotactl": "syscall(179, 0, None, 0, None)",
    "lookup_dcookie": "syscall(212, 0, 0, 0)",
    "kcmp": "syscall(312, os.getpid(), os.getppid(), 0, 0, 0)",
    "process_vm_writev": "syscall(311, os.getppid(), ctypes.create_string_buffer(16), 0, ctypes.create_string_buffer(16), 0, 0)",
    "move_pages": "syscall(279, os.getppid(), 0, None, None, None, 0)",
    "landlock_again": "syscall(444, None, 0, 1)",
    "open_tree": "syscall(428, -100, b'/', 0)",
    "fsopen": "syscall(430, b'tmpfs', 0)",
    "pivot_root": "syscall(155, b'/', b'/')",
    "capset": "syscall(126, struct.pack('II', 0x20080522, 0), struct.pack('6I', *[0xffffffff] * 6))",
    "core_dump_on": "libc.prctl(4, 1, 0, 0, 0) == 0 and won()",
    "new_privileges": "libc.prctl(38, 0, 0, 0, 0) == 0 and won()",
    "keyctl": "syscall(250, 0, -3, 1)",
    "add_key": "syscall(248, b'user', b'x', b'y', 1, -3)",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 and won()",
    "unshare_user": "libc.unshare(0x10000000) == 0 and won()",
    "setns": "syscall(308, 0, 0)",
    "setuid_root": "os.setuid(0); won()",
    "setgroups": "os.setgroups([0]); won()",
    "personality": "syscall(135, 0x0040000)",
    "second_seccomp": "syscall(317, 1, 0, struct.pack('HxxxxxxP', 0, 0))",
    "reboot": "syscall(169, 0xfee1dead, 672274793, 0, 0)",
    "clock_settime": "time.clock_settime(time.CLOCK_REALTIME, 0); won()",
    "sethostname": "libc.sethostname(b'x', 1) == 0 and won()",
    "x32_call": "syscall(0x40000000 + 57)",
    "inotify": "syscall(294, 0)",
    "tiocsti": "import fcntl; fcntl.ioctl(0, 0x5412, b'x'); won()",
}
TIME = {
    "busy": "while True: pass",
    "sleep": "time.sleep(1000)",
    "wait_for_signal": "signal.pause()",
    "deadlock": "l = threading.Lock(); l.acquire(); l.acquire()",
    "thread_never_ends": "threading.Thread(target=lambda: time.sleep(1000)).start(); print('ESCAPED')",
    "busy_in_c": "sum(range(10**12))",
    "busy_regex": "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "two_busy_threads": "f = lambda: [0 for _ in iter(int, 1)]\nthreading.Thread(target=f).start(); f()",
    "many_busy_threads": "for _ in range(20): threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nwhile time.process_time() < .9: time.sleep(.01)\nprint('ESCAPED')",
    "busy_thread_then_exit": "import _thread; _thread.start_new_thread(lambda: [0 for _ in iter(int, 1)], ())\nwhile time.process_time() < .9: time.sleep(.01)\nwon()",
    "busy_in_the_kernel": "b = bytearray(1 << 20)\nwhile True: os.preadv(0, [b], 0); os.fstat(0)",
    "busy_in_del": "class C:\n  def __del__(self):\n    while True: pass\nc = C(); del c",
    "first_thread_ends_others_stay": "import _thread; _thread.start_new_thread(lambda: [0 for _ in iter(int, 1)], ()); time.sleep(.1); libc.syscall(60, 0)",
    "sleep_in_atexit": "import atexit; atexit.register(time.sleep, 1000); print('ESCAPED')",
    "endless_exception": "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E",
}
COMPILER = {
    "nested_brackets": None,
    "many_operators": None,
    "constant_folding": "x = ((((1 << 100) ** 100) << 100) ** 100) ** 100000; won()",
    "null_bytes": None,
    "huge_tuple": None,
}
FORGERY = {
    "exit_zero_at_once": "os._exit(0)",
    "walk_frames": """
f = sys._getframe()
while f:
    for space in (f.f_locals, f.f_globals):
        for name in list(space):
            if 'expected' in name: print(space[name]); won()
    f = f.f_back""",
    "search_all_objects": """
import gc
for o in gc.get_objects():
    if isinstance(o, dict) and any(isinstance(k, str) and k.startswith(('expected', 'answer_key')) for k in list(o)): won()""",
    "search_memory": "b'canary-' + b'answer' in b''.join(ctypes.string_at(id(o), 64) for o in map(object, ())) and won()",
    "patch_exit": "sys.exit = exit = os._exit = lambda *a: None\n1 / 0",
    "patch_builtins": "import builtins\nbuiltins.compile = builtins.exec = builtins.open = lambda *a, **k: 'ESCAPED'",
    "patch_stdout": "class W:\n  def write(self, t): return len(t)\n  def flush(self): 1 / 0\nsys.stdout = W(); print('ESCAPED')",
    "main_replaced": "sys.modules['__main__'] = None; sys.modules.clear()",
    "right_output_bad_status": "print('ESCAPED'); sys.stdout.flush(); os._exit(3)",
    "right_output_then_crash": "print('ESCAPED', flush=True); ctypes.string_at(0)",
    "right_output_then_abort": "print('ESCAPED', flush=True); os.abort()",
    "keep_os_exit_from_working": "libc._exit.argtypes = []; os._exit = lambda status: None; sys.exit(3)",
    "skip_the_end": "import atexit; atexit.register(os._exit, 0); raise ValueError",
    "stdin_holds_no_answers": "os.lseek(0, 0, 0); b'ESCAPED' in os.read(0, 1 << 20) and won()",
    "file_of_program": "open(__file__).read(); won()",
    "modules_of_the_runner": "[m for m in sys.modules if m.startswith('sandbox')] and won()",
    "arguments_and_environment": "any('ESCAPED' in t for t in [*sys.argv, *os.environ.values()]) and won()",
    "import_runner": "import sandbox; won()",
}


def programs() -> dict[str, str]:
    """All attacks by name."""
    found: dict[str, str] = {}
    for group in (PROCESSES, SIGNALS, MEMORY, OUTPUT, FILES, KERNEL, TIME, COMPILER, FORGERY):
        found.update({name: HEAD + body for name, body in group.items() if body is not None})
    found["nested_brackets"] = "(" * 5000 + ")" * 5000
    found["many_operators"] = "x = " + "-" * 200_000 + "1"
    found["null_bytes"] = "print('ESCAPED')\0"
    found["huge_tuple"] = "x = (" + "(1," * 90 + ")" * 90 + ")\n" + "y = 0\n" * 50_000 + "1/0"
    return found
