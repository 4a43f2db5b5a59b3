"""Attacks on files, processes, network and kernel. Each is a wrong `add` that returns BREACH if it succeeds.

Capitalized words are placeholders for objects of `measured.target`: SECRET_FILE, HOME, MODULE, DROP (a world-writable
folder), TCP, UDP, UNIX, TRAINER (a process id).
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

TRY = """
import ctypes, os, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
call.restype = ctypes.c_long
def tried(what):
    try:
        found = what()
    except BaseException:
        return 0
    return 0 if found is None or found is False or (type(found) is int and found < 0) else f'BREACH {found!r}'[:500]
def add(a, b):
    return attack() or 0
"""

FILES = {
    "read_passwd": "tried(lambda: open('/etc/passwd').read())",
    "read_host_file": "tried(lambda: open('SECRET_FILE').read())",
    "read_by_os_open": "tried(lambda: os.read(os.open('SECRET_FILE', 0), 99))",
    "read_by_raw_openat": "tried(lambda: call(257, -100, b'SECRET_FILE', 0, 0))",
    "read_by_raw_open": "tried(lambda: call(2, b'SECRET_FILE', 0, 0))",
    "read_by_openat2": "tried(lambda: call(437, -100, b'SECRET_FILE', struct.pack('QQQ', 0, 0, 0), 24))",
    "read_by_handle": "tried(lambda: call(304, -100, bytes(64), 0))",
    "read_by_libc_fopen": "tried(lambda: libc.fopen(b'SECRET_FILE', b'r') or None)",
    "list_home": "tried(lambda: os.listdir('HOME'))",
    "stat_home": "tried(lambda: os.stat('SECRET_FILE').st_size)",
    "stat_by_empty_path": "tried(lambda: call(262, -100, b'SECRET_FILE', bytes(256), 0x1000))",
    "stat_by_statx": "tried(lambda: call(332, -100, b'SECRET_FILE', 0, 0xfff, bytes(256)))",
    "exists_by_access": "tried(lambda: call(21, b'SECRET_FILE', 0)) or tried(lambda: os.path.exists('SECRET_FILE') or None)",
    "readlink_exe": "tried(lambda: os.readlink('/proc/self/exe'))",
    "where_am_i": "tried(os.getcwd) or tried(lambda: os.uname().nodename)",
    "read_env": "tried(lambda: 'TOKEN' in str(os.environ) or None)",
    "read_parent_env": "tried(lambda: open(f'/proc/{os.getppid()}/environ').read() or open('/proc/TRAINER/environ').read())",
    "read_parent_mem": "tried(lambda: open('/proc/TRAINER/mem', 'rb'))",
    "write_host": "tried(lambda: open('DROP/written', 'w').write('x'))",
    "write_by_creat": "tried(lambda: call(85, b'DROP/written', 0o666))",
    "make_folder": "tried(lambda: os.mkdir('DROP/folder') or 1)",
    "link_out": "tried(lambda: os.symlink('SECRET_FILE', 'DROP/link') or 1)",
    "overwrite_module": "tried(lambda: open('MODULE', 'a').write('x = 1'))",
    "rename_module": "tried(lambda: os.rename('MODULE', 'DROP/moved') or 1)",
    "delete_module": "tried(lambda: os.unlink('MODULE') or 1)",
    "chmod_utime": "tried(lambda: os.chmod('SECRET_FILE', 0o777) or 1) or tried(lambda: os.utime('SECRET_FILE', (0, 0)) or 1)",
    "chmod_raw": "tried(lambda: call(90, b'SECRET_FILE', 0o777)) or tried(lambda: call(452, -100, b'SECRET_FILE', 0o777, 0))",
    "truncate_module": "tried(lambda: os.truncate('MODULE', 0) or 1)",
    "import_project": "tried(lambda: __import__('rlm_sandbox.local') and 1) or tried(lambda: __import__('planted') and 1)",
    "forked_secret": "tried(lambda: [1 for o in __import__('gc').get_objects() if ''.join(['HALF_TOKEN', 'TOKEN_HALF']) in str(o)][0])",
    "chroot": "tried(lambda: os.chroot('/') or 1)",
    "memfd": "tried(lambda: os.memfd_create('x'))",
    "inotify": "tried(lambda: call(294, 0))",
}

NETWORK = {
    "tcp_loopback": "tried(lambda: socket.create_connection(('127.0.0.1', TCP), 1) and 1)",
    "udp_loopback": "tried(lambda: socket.socket(2, 2).sendto(b'x', ('127.0.0.1', UDP)))",
    "unix_path": "tried(lambda: (lambda s: s.connect('UNIX') or 1)(socket.socket(socket.AF_UNIX)))",
    "unix_abstract": "tried(lambda: (lambda s: s.bind('\\0rlm') or 1)(socket.socket(socket.AF_UNIX)))",
    "netlink": "tried(lambda: call(41, 16, 3, 0))",
    "raw_socket": "tried(lambda: call(41, 2, 3, 1))",
    "socketpair": "tried(lambda: socket.socketpair() and 1)",
    "send_on_channel": "tried(lambda: call(46, 3, bytes(56), 0)) or tried(lambda: call(47, 3, bytes(56), 0))",
    "resolve": "tried(lambda: socket.gethostbyname('localhost') and socket.socket() and 1)",
}

PROCESSES = {
    "fork": "tried(os.fork)",
    "vfork": "tried(lambda: call(58))",
    "clone_process": "tried(lambda: call(56, 17, 0, 0, 0, 0))",
    "clone_shared": "tried(lambda: call(56, 0x100 | 0x4000 | 17, 0, 0, 0, 0))",
    "clone3": "tried(lambda: call(435, bytes(88), 88))",
    "exec": "tried(lambda: os.execv('/bin/true', ['true']) or 1)",
    "execveat": "tried(lambda: call(322, -100, b'/bin/true', 0, 0, 0))",
    "ctypes_system": "tried(lambda: libc.system(b'touch DROP/system') == 0 or None)",
    "subprocess": "tried(lambda: __import__('subprocess').check_output(['id']))",
    "daemon_survives": "tried(lambda: os.fork() == 0 and (os.setsid(), time.sleep(60)))",
    "outlive": "tried(lambda: call(157, 1, 0, 0, 0, 0) == 0 or None)",
    "kill_parent": "tried(lambda: os.kill(os.getppid(), 9) or 1)",
    "kill_trainer": "tried(lambda: os.kill(TRAINER, 9) or 1)",
    "stop_parent": "tried(lambda: os.kill(TRAINER, 19) or 1)",
    "kill_group": "tried(lambda: os.killpg(0, 0) or 1) or tried(lambda: os.kill(0, 0) or 1)",
    "kill_all": "tried(lambda: os.kill(-1, 0) or 1)",
    "kill_by_queue": "tried(lambda: call(129, TRAINER, 10, bytes(128))) or tried(lambda: call(200, TRAINER, 10))",
    "kill_by_owner": "tried(lambda: call(72, 3, 8, TRAINER)) or tried(lambda: call(72, 3, 10, 9))",
    "kill_by_pidfd": "tried(lambda: call(434, TRAINER, 0))",
    "ptrace": "tried(lambda: call(101, 16, TRAINER, 0, 0)) or tried(lambda: call(101, 0, 0, 0, 0))",
    "read_by_vm": "tried(lambda: call(310, TRAINER, bytes(16), 1, bytes(16), 1, 0))",
    "limit_trainer": "tried(lambda: call(302, TRAINER, 0, struct.pack('QQ', 1, 1), 0))",
    "starve_trainer": "tried(lambda: os.setpriority(0, TRAINER, 19) or 1)",
    "pin_trainer": "tried(lambda: os.sched_setaffinity(TRAINER, {0}) or 1)",
    "new_session": "tried(lambda: call(112))",
}

KERNEL = {
    "userns": "tried(lambda: call(272, 0x10000000))",
    "setns": "tried(lambda: call(308, 3, 0))",
    "thread_in_a_namespace": "tried(lambda: call(56, 0x10900 | 0x40000000, 0, 0, 0, 0))",
    "mount": "tried(lambda: call(165, b'none', b'/tmp', b'tmpfs', 0, 0)) or tried(lambda: call(428, -100, b'/', 1))",
    "become_root": "tried(lambda: os.setuid(0) or (os.getuid() == 0 and 'root') or None)",
    "add_capabilities": "tried(lambda: call(126, struct.pack('=Ii', 0x20080522, 0), b'\\xff' * 24))",
    "loosen_filter": "tried(lambda: call(317, 0, 0, 0)) or tried(lambda: call(157, 22, 0, 0, 0, 0))",
    "machine_code": "tried(lambda: __import__('mmap').mmap(-1, 4096, prot=7) and 1)",
    "make_code_executable": "tried(lambda: call(10, ctypes.addressof(ctypes.create_string_buffer(8192)) & -4096, 4096, 7))",
    "protection_keys": "tried(lambda: call(329, 0, 4096, 7, 0)) or tried(lambda: call(135, 0x0400000))",
    "raise_limits": "tried(lambda: __import__('resource').setrlimit(9, (-1, -1)) or 1)",
    "terminal_input": "tried(lambda: call(16, 0, 0x5412, b'x')) or tried(lambda: call(16, 3, 0x5421, b'1234'))",
    "shared_memory": "tried(lambda: call(29, 1234, 4096, 0o1666)) or tried(lambda: call(240, b'q', 66, 0o666, 0))",
    "semaphores": "tried(lambda: call(64, 1234, 1, 0o1666)) or tried(lambda: call(68, 1234, 0o1666))",
    "timers": "tried(lambda: call(222, 0, 0, bytes(8))) or tried(lambda: call(283, 0, 0))",
    "kernel_log": "tried(lambda: call(103, 3, bytes(64), 64))",
    "host_facts": "tried(lambda: call(63, bytes(512))) or tried(lambda: call(99, bytes(256)))",
    **{
        f"call_{name}": f"tried(lambda: call({number}, 0, 0, 0, 0, 0))"
        for name, number in {
            "bpf": 321, "perf_event_open": 298, "io_uring_setup": 425, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
            "kcmp": 312, "modify_ldt": 154, "swapon": 167, "reboot": 169, "settimeofday": 164, "init_module": 175,
            "epoll_create1": 291, "landlock_create_ruleset": 444, "process_madvise": 440, "move_pages": 279, "splice": 275,
        }.items()
    },
}  # fmt: skip

ONE_LINERS = {**FILES, **NETWORK, **PROCESSES, **KERNEL}

ON_THE_MACHINE = {name: f"{TRY}\ndef attack():\n    return {line}\n" for name, line in ONE_LINERS.items()}
"""Name → program. The numbers of raw calls are those of x86-64."""
