"""What NCCL knows about its environment, and what it silently misreads.

NCCL reports neither a misspelt name nor an unreadable number: `NCCL_PROT=LL` is ignored, `16M` is
read as 16 and `true` as 0. A study whose axis is an NCCL variable must find that out before it
measures. The names are the strings of NCCL's library at 2.18, 2.27 and 2.30; the rules follow its
readers (`src/misc/param.cc`, `src/graph/tuning.cc`, `src/graph/paths.cc`).
"""

from __future__ import annotations

import difflib
import os
import re

# Variables that NCCL 2.18 to 2.30 reads, without the prefix.
_NAMES = """
AGG_CHANNEL_SIZE ALGO ALLGATHERV_ENABLE ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE
CHECK_MODE CHECK_POINTERS CHUNK_SIZE COLLNET_ENABLE COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID
COMM_SHRINK_SHARE_RESOURCES COMM_SPLIT_SHARE_RESOURCES CONF_FILE CONNECT_ROUND_MAX_PEERS
CREATE_THREAD_CONTEXT CROSS_NIC CTA_POLICY CUDA_PATH CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG
DEBUG_FILE DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS DEV_API_JIT
DISABLE_MEM_MANAGER DMABUF_ENABLE ELASTIC_BUFFER_REGISTER ENABLE_VERSION_CHECK ENV_PLUGIN
GDAKI_USE_RELIABLE_DB GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE
GDRCOPY_SYNC_ENABLE GDR_FLUSH_DISABLE GIN_ENABLE GIN_ERROR_QUERY_SEC
GIN_GDAKI_GPU_CONTEXT_MAX_SIZE GIN_GDAKI_GPU_CONTEXT_VERSION GIN_GDAKI_MAX_DEST_RD_ATOMIC
GIN_GDAKI_MAX_QP_RD_ATOMIC GIN_GDAKI_NIC_HANDLER GIN_GDAKI_QP_DEPTH GIN_IB_ALLGATHER_TAG
GIN_IB_ALLTOALL_TAG GIN_IB_TC GIN_NCONNECTIONS GIN_PLUGIN GIN_PROXY_GPU_CONTEXT_MAX_SIZE
GIN_PROXY_GPU_CONTEXT_VERSION GIN_PROXY_QUEUE_SIZE GIN_TYPE GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK
GRAPH_FILE GRAPH_HELPER_DISABLE GRAPH_MIXING_SUPPORT GRAPH_REGISTER GRAPH_STREAM_ORDERING
GROUP_CUDA_STREAM HOSTID IBVERBS_LIB IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE
IB_AR_THRESHOLD IB_DATA_DIRECT IB_DEVICE_PCI_ORDER IB_DISABLE IB_ECE_ENABLE IB_FIFO_TC
IB_GID_INDEX IB_HCA IB_MAX_DEVS_PER_NIC IB_MERGE_NICS IB_MERGE_VFS IB_MQP_RETRY_ALL
IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_OOO_RQ IB_PCI_RELAXED_ORDERING IB_PKEY
IB_PREPOST_RECEIVE_WORK_REQUESTS IB_QPS_PER_CONNECTION IB_QUERY_PORT_SPEED
IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RECV_WR_ID_DUMMY IB_RESILIENCY_PORT_FAILOVER
IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY
IB_RESILIENCY_PORT_RECOVERY IB_RESILIENCY_PORT_RECOVERY_ACK_MSG_ID
IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX
IB_RESILIENCY_PORT_RECOVERY_START_DELAY IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM
IB_ROUTABLE_FLID_GID_INDEX IB_SL IB_SPLIT_DATA_ON_QPS IB_SUBNET_AWARE_ROUTING
IB_SUBNET_PREFIX_LEN IB_TC IB_TIMEOUT IB_USE_INLINE IB_WARN_RAIL_LOCAL IGNORE_COLLNET_MISMATCH
IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P IGNORE_NET_MISMATCH L1_SHARED_MEMORY_CARVEOUT
LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LL128_BUFFSIZE
LL128_C2C LL128_NTHREADS LL_BUFFSIZE LOCAL_REGISTER LSA_TEAM_SIZE MAX_CTAS MAX_NCHANNELS
MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS MIN_NRINGS MIN_P2P_NCHANNELS
MLOPART_RDMA_ENABLE MNNVL_CLIQUE_ID MNNVL_CROSS_CLIQUE MNNVL_ENABLE MNNVL_RAIL_PER_HOST
MNNVL_SCATTER_NETS_ENABLE MNNVL_UUID MULTI_RANK_GPU_ENABLE MULTI_SEGMENT_REGISTER
NCHANNELS_PER_NET_PEER NET NETDEVS_POLICY NET_DISABLE_INTRA NET_FORCE_FLUSH NET_FORCE_MERGE
NET_GDR_C2C NET_GDR_LEVEL NET_GDR_MLOPART NET_GDR_READ NET_MERGE_LEVEL NET_MERGE_POLICY
NET_OPTIONAL_RECV_COMPLETION NET_OVERHEAD NET_PLUGIN NET_SHARED_BUFFERS NET_SHARED_COMMS
NO_CACHE NSOCKS_PERTHREAD NTHREADS NUM_RMA_CTX NVB_DISABLE NVB_PRECONNECT
NVLINK_UTIL_CENTRIC_SCHED_ENABLE NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE NVLS_ENABLE
NVLS_NCHANNELS NVTX_DISABLE OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE P2P_DISABLE
P2P_EPOCH_ENABLE P2P_LEVEL P2P_LL_THRESHOLD P2P_MAX_PEERS P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE
P2P_PCI_CHUNKSIZE P2P_PER_CHANNEL_NET_BW P2P_PXN_LEVEL P2P_READ_ENABLE P2P_SCHEDULE_GROUP_SIZE
P2P_USE_CUDA_MEMCPY PARAM_DUMP_ALL PAT_ENABLE PROFILE PROFILER_PLUGIN PROGRESS_APPENDOP_FREQ
PROTO PROXY_APPEND_BATCH_SIZE PROXY_CPUSET PROXY_DUMP_SIGNAL PXN_C2C PXN_DISABLE RAS_ADDR
RAS_ENABLE RAS_TIMEOUT_FACTOR REPORT_CONNECT_PROGRESS RMA_DISABLE RMA_PLUGIN
RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE RUNTIME_CONNECT SET_CPU_STACK_SIZE SET_STACK_SIZE
SET_THREAD_NAME SHADOW_MEMPOOL_MAX_SIZE SHM_DISABLE SHM_LOCALITY SHM_MEMCPY_MODE
SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE SOCKET_FAMILY SOCKET_IFNAME SOCKET_INLINE
SOCKET_MIN_TASKSIZE SOCKET_NTHREADS SOCKET_POLL_TIMEOUT_MSEC SOCKET_RCVBUF SOCKET_RETRY_CNT
SOCKET_RETRY_SLEEP_MSEC SOCKET_SNDBUF SYM_CE_THRESHOLD SYM_CTAS SYM_GIN_KERNELS_ENABLE
SYM_KERNEL SYM_NOWIN_ENABLE SYM_REUSE_SYSMEM_HANDLES SYM_RS_GIN_CHUNK_SIZE SYM_TMA_ENABLE
THREAD_THRESHOLDS TOPO_DUMP_FILE TOPO_DUMP_FILE_RANK TOPO_FILE TOPO_SPLIT_MLOPART
TUNER_CONFIG_FILE TUNER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD UNPACK_DOUBLE_NCHANNELS
WARN_ENABLE_DEBUG_INFO WIN_ENABLE WIN_STRIDE WORK_ARGS_BYTES WORK_FIFO_BYTES WORK_FIFO_DEPTH
"""
NAMES = frozenset("NCCL_" + name for name in _NAMES.split())

# Read as text; the others are read with strtoll, which stops at the first bad character.
_TEXT = """
ALGO CHECK_MODE COMM_ID CONF_FILE CTA_POLICY CUDA_PATH DEBUG DEBUG_FILE DEBUG_SUBSYS
DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS ENV_PLUGIN GIN_GDAKI_NIC_HANDLER GIN_PLUGIN
GIN_TYPE GRAPH_DUMP_FILE GRAPH_FILE HOSTID IBVERBS_LIB IB_ADDR_FAMILY IB_ADDR_RANGE IB_HCA
LAUNCH_MODE NET NETDEVS_POLICY NET_FORCE_MERGE NET_GDR_LEVEL NET_MERGE_LEVEL NET_MERGE_POLICY
NET_PLUGIN OOB_NET_IFNAME P2P_LEVEL PARAM_DUMP_ALL PROFILE PROFILER_PLUGIN PROTO PROXY_CPUSET
RAS_ADDR RMA_PLUGIN SOCKET_FAMILY SOCKET_IFNAME SYM_KERNEL THREAD_THRESHOLDS TOPO_DUMP_FILE
TOPO_FILE TUNER_CONFIG_FILE TUNER_PLUGIN
"""
TEXT = frozenset("NCCL_" + name for name in _TEXT.split())

# Set by images and plugins beside NCCL's own; not read by NCCL itself.
FOREIGN = (
    "NCCL_VERSION",
    "NCCL_OFI_",
    "NCCL_UCX_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX",
    "NCCL_SHARP_",
)

# Read long ago; recipes still carry them.
_REMOVED = {
    "NCCL_LL_THRESHOLD": "2.5 (NCCL_PROTO chooses now)",
    "NCCL_TREE_THRESHOLD": "2.5 (NCCL_ALGO chooses now)",
}

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
FUNCTIONS = (
    "Broadcast",
    "Reduce",
    "AllGather",
    "AllGatherV",
    "ReduceScatter",
    "AllReduce",
    "SendRecv",
)
# What an AllGather can be done by; a tree only reduces (`src/device/generate.py`, 2.19 to 2.30).
GATHERING = frozenset({"Ring", "CollNetDirect", "NVLS", "PAT"})
PATH_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_LEVEL_VARIABLES = ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_NET_MERGE_LEVEL")
# A path level may be a number, of an old numbering; NCCL logs the level's name.
_NUMBERED = {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"}
_OLD_NUMBERS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
_DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_INPUT_FILES = ("NCCL_CONF_FILE", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_TUNER_CONFIG_FILE")

# Threads per block: (smallest, largest); other values are replaced with only an INFO line.
_THREADS = {"NCCL_NTHREADS": (64, 512), "NCCL_LL128_NTHREADS": (160, 640)}
_CHANNELS = ("NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS")
# NCCL's MAXCHANNELS: 32 up to 2.24, 64 from 2.25.1.
MAX_CHANNELS = 64


def problems(name: str, value: str) -> list[str]:
    """What is wrong with `name=value` and what NCCL would make of it; empty when all is well.

    Variables that are not NCCL's pass. A file that does not exist is no problem of the config, which
    may be read on another machine: see `missing_file`.
    """
    if not name.upper().replace("-", "_").startswith("NCCL_") or name.startswith(FOREIGN):
        return []
    if name in _REMOVED:
        return [f"NCCL reads it no more since {_REMOVED[name]}"]
    if name not in NAMES:
        close = suggestion(name)
        if close is None:
            return []  # a later release may know it; see `warnings`
        return [f"NCCL has no such variable and ignores it without a word; did you mean {close}?"]
    if value == "":
        return []  # an empty value is NCCL's default
    if name in ("NCCL_ALGO", "NCCL_PROTO"):
        return _choice_list(name, value)
    if name in _LEVEL_VARIABLES:
        return _path_level(value)
    if name == "NCCL_DEBUG":
        if value.upper() in _DEBUG_LEVELS:
            return []
        return [f"{value!r} is no level; NCCL would log nothing; one of {', '.join(_DEBUG_LEVELS)}"]
    if name in TEXT:
        if value.startswith("~"):
            return [f"NCCL does not expand {value.split('/')[0]!r}; write the whole path"]
        return []
    return _integer(name, value)


def is_nccl(name: str) -> bool:
    """Whether NCCL (2.18 to 2.30) reads a variable of that name."""
    return name in NAMES


def suggestion(name: str) -> str | None:
    """The variable that a misspelt name most likely means, or None."""
    wanted = name.upper().replace("-", "_")
    if wanted in NAMES:
        return wanted
    # NCCL_ALGORITHM, NCCL_PROTOCOL: the name in full, which no similarity measure puts near.
    longer = [known for known in ("NCCL_ALGO", "NCCL_PROTO") if wanted.startswith(known)]
    close = longer or difflib.get_close_matches(wanted, NAMES, 1, cutoff=0.85)
    return close[0] if close else None


def missing_file(name: str, value: str) -> str | None:
    """Why a file-valued variable cannot work on this machine, or None."""
    if name not in _INPUT_FILES or not value or os.path.isfile(value):  # noqa: PTH113 - raises nothing
        return None
    effect = {
        "NCCL_GRAPH_FILE": "NCCL's initialisation fails",
        "NCCL_TOPO_FILE": "NCCL warns and detects the topology itself",
        "NCCL_CONF_FILE": "NCCL reads no file, and ~/.nccl.conf neither",
        "NCCL_TUNER_CONFIG_FILE": "the tuner plugin finds no table",
    }[name]
    return f"no file {value} on this machine: {effect}"


def read_integer(value: str) -> tuple[int, bool]:
    """What `strtoll(value, NULL, 0)` makes of a value, and whether that is what a person reads."""
    match = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", value)
    if match is None:
        return 0, False
    sign, digits = match.groups()
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") else 10
    number = int(digits, base)
    plain = match.end() == len(value) and (base == 10 or digits == "0" or base == 16)
    return (-number if sign == "-" else number), plain


def as_logged(name: str, value: str) -> str:
    """A text value as NCCL's log has it."""
    if name in _NUMBERED and value[:1].isdigit():
        return _OLD_NUMBERS[min(read_integer(value)[0], len(_OLD_NUMBERS) - 1)]
    return value


def _integer(name: str, value: str) -> list[str]:
    number, plain = read_integer(value)
    if not plain:
        return [f"{value!r} is not a whole number: NCCL reads it as {number} and says nothing"]
    if name in _THREADS:
        low, high = _THREADS[name]
        if number % 32 or not low <= number <= high:
            used = low if number < low and number % 32 == 0 else high
            return [
                f"{value}: a multiple of 32 from {low} to {high} is expected; "
                f"NCCL uses {used} instead and says so only at INFO level"
            ]
    if name in _CHANNELS and not 1 <= number <= MAX_CHANNELS:
        return [f"{value} is outside 1 to {MAX_CHANNELS} (32 before NCCL 2.25): NCCL clamps it"]
    if name.endswith("BUFFSIZE") and number <= 0:
        return [f"{value} is no buffer size; give bytes"]
    return []


def _path_level(value: str) -> list[str]:
    if value in PATH_LEVELS or value[0].isdigit():
        return []
    if value.upper() in PATH_LEVELS:
        return [f"{value!r} is ignored without a word: NCCL compares case; write {value.upper()}"]
    return [f"{value!r} is ignored without a word: NCCL knows {', '.join(PATH_LEVELS)}"]


def _choice_list(name: str, value: str) -> list[str]:
    """NCCL_ALGO, NCCL_PROTO: `a,b`, `^a,b`, from 2.24 `function:a,b;...`; in any case."""
    allowed = ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS
    known = {a.lower() for a in allowed}
    found = []
    for part in value.split(";"):
        function, colon, choices = part.rpartition(":")
        if colon and function.lower() not in {f.lower() for f in FUNCTIONS}:
            found.append(f"{function!r} is no collective; one of {', '.join(FUNCTIONS)}")
        for token in choices.removeprefix("^").split(","):
            if token.lower() not in known:
                found.append(
                    f"{token!r} is none of {', '.join(allowed)}: NCCL from 2.24 refuses to start, "
                    "before that it ignores the word and may find nothing left to choose"
                )
    return found


def allowed_choices(name: str, value: str, function: str = "AllReduce") -> frozenset[str]:
    """The algorithms or protocols that NCCL_ALGO or NCCL_PROTO leaves to a collective."""
    everything = ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS
    allowed = frozenset(everything)
    for part in value.split(";"):
        where, colon, choices = part.rpartition(":")
        if colon and where.lower() != function.lower():
            continue
        named = {t.lower() for t in choices.removeprefix("^").split(",")}
        keep = choices.startswith("^")
        allowed = frozenset(c for c in everything if (c.lower() in named) != keep)
    return allowed


def speaks_of(value: str, function: str) -> bool:
    """Whether a list of NCCL_ALGO or NCCL_PROTO says anything about a collective, by name or about all."""
    where = (part.rpartition(":") for part in value.split(";"))
    return any(not colon or name.lower() == function.lower() for name, colon, _ in where)
