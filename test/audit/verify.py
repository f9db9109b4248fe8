#!/usr/bin/env python3
"""Verifies an audit chain, written from man/svc-audit.7.md alone, with nothing but the standard library.

verify.py FILE [KEYS]: prints {"verdict", "kind", "seq"}; exit 0 sound, 1 tampered, 9 cannot tell. It keeps no pins."""
import base64, hashlib, json, re, sys

class Fault(Exception):
    def __init__(self, kind, seq, verdict="tampered"):
        self.kind, self.seq, self.verdict = kind, seq, verdict
sha256 = lambda data: hashlib.sha256(data).digest()

# Ed25519 (RFC 8032), in affine coordinates.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
def add(a, b):
    m = D * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + m, -1, P)
    return x % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - m, -1, P) % P
def times(n, point):
    total = (0, 1)
    while n:
        total, point, n = (add(total, point) if n & 1 else total), add(point, point), n >> 1
    return total
def decompress(data):
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    x = x if x * x % P == x2 else x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != x2 or (x == 0 and sign):
        return None
    return (x if x & 1 == sign else P - x), y

BASE = decompress((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
def is_true(signature, text, key):
    point, s = decompress(key), int.from_bytes(signature[32:], "little")
    if point is None or len(signature) != 64 or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    x, y = add(times(s, BASE), times(k, (P - point[0], point[1])))
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]

# Signed notes, and what stands in them.
def unbase64(text):
    data = base64.b64decode(text) if re.fullmatch(r"([\w+/]{4})*([\w+/]{2}==|[\w+/]{3}=)?", text, re.A) else b""
    return data if base64.b64encode(data).decode() == text else None
key_id = lambda name, key: sha256(name.encode() + b"\n\x01" + key)[:4]
def parse_note(note):
    text, gap, rest = note.rpartition("\n\n")
    found = [re.fullmatch("— ([^\\s+]+) (\\S+)", line) for line in rest[:-1].split("\n")]
    bodies = [unbase64(match[2]) if match else None for match in found]
    if not gap or rest[-1:] != "\n" or any(body is None or len(body) <= 4 for body in bodies):
        return None
    return text + "\n", [(match[1], body[:4], body[4:]) for match, body in zip(found, bodies)]
def is_signed(note, name, key):
    own = [signature for who, number, signature in note[1] if (who, number) == (name, key_id(name, key))]
    return bool(own) and all(is_true(signature, note[0].encode(), key) for signature in own)

HASH, TIME = "([A-Za-z0-9+/]{43}=)", r"\ntime (\S{24})\n"
STATEMENT = rf"svc/audit/(system|[0-9a-f-]{{36}})\n(0|[1-9]\d{{0,15}})\n{HASH}\nhead ([0-9a-f]{{64}}){TIME}(pruned\n)?"
SUCCESSION = rf"svc/audit/keys\nfrom {HASH}\nto {HASH}{TIME}"

def extended(trusted, successions):
    pairs = []
    for note in map(parse_note, successions):
        match = note and re.fullmatch(SUCCESSION, note[0])
        pairs.append({unbase64(match[1]), unbase64(match[2])} if match else {None})
        if None in pairs[-1] or not all(is_signed(note, "svc/audit/keys", key) for key in pairs[-1]):
            raise Fault("altered", 1)
    known = set(trusted)
    while any(pair & known and pair - known for pair in pairs):
        known.update(*(pair for pair in pairs if pair & known))
    return known

def opened(text, org, pruned, trusted, seq, doubts):
    """Size, root and head of a checkpoint or anchor; one by an unknown key is a doubt."""
    match = (note := parse_note(text)) and re.fullmatch(STATEMENT, note[0])
    if not match or bool(match[6]) != pruned:
        raise Fault("unanchored" if pruned else "unreadable", seq)
    if match[1] != (org or "system"):
        raise Fault("foreign", seq)
    name, ids = "svc/audit/" + match[1], {number for _, number, _ in note[1]}
    if trusted is not None and not any(is_signed(note, name, key) for key in trusted):
        if any(key_id(name, key) in ids for key in trusted):
            raise Fault("altered", seq)
        doubts.append(("unverifiable", "wrong_key", seq))
    return int(match[2]), unbase64(match[3]), match[4]

# The tree, as a stack of perfect trees: (leaves, hash).
def push(stack, leaf, size=1):
    while stack and stack[-1][0] == size:
        size, leaf = size * 2, sha256(b"\x01" + stack.pop()[1] + leaf)
    stack.append((size, leaf))
def root_of(stack):
    root = stack[-1][1] if stack else sha256(b"")
    for _, left in reversed(stack[:-1]):
        root = sha256(b"\x01" + left + root)
    return root

# The lines of a file.
def parse(line, *allowed):
    """An object of these fields at most, in the one spelling it has."""
    try:
        value = json.loads(line)
        again = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError:
        return None
    return value if isinstance(value, dict) and again == line and set(value) <= set(allowed) else None
is_count = lambda value: type(value) is int and 0 <= value < 2**53
def trailer_of(line):
    value = parse(line, "head", "checkpoint")
    head = value and value.get("head")
    fits = isinstance(head, dict) and set(head) == {"seq", "checksum"} and is_count(head["seq"])
    return value if fits and all(isinstance(one, str) for one in (head["checksum"], value.get("checkpoint", ""))) else None

def entry_of(line):
    """A whole entry with its checksum; False when its text does not match that; None for any other line."""
    if not line.startswith(b'{"checksum":"'):
        return None
    if line[77:87] != b'","entry":' or line[-1:] != b"}" or sha256(line[87:-1]).hex().encode() != line[13:77]:
        return False
    entry = json.loads(line[87:-1])
    fits = is_count(entry.get("seq")) and isinstance(entry.get("prevChecksum"), str) and "orgId" in entry
    return entry | {"checksum": line[13:77].decode()} if fits else None

def misfit(entry, org, seq, link, later, anchored):
    """The kind of fault of a line that is not the next entry."""
    if entry is False or (entry and entry["orgId"] != org):
        return "foreign" if entry else "altered"
    follow = [one for one in map(entry_of, later) if one and one["orgId"] == org]
    comes = any((one["seq"], one["prevChecksum"]) == (seq, link) for one in follow)
    if not entry or entry["seq"] <= seq:
        return "inserted" if comes or (entry and entry["seq"] < seq) else "relinked" if entry else "unreadable"
    if comes:
        return "inserted" if any(one["seq"] == entry["seq"] for one in follow) else "reordered"
    return "missing" if anchored or seq > 1 else "unanchored"
def compare(said, chain):
    if said != chain:
        kind = "truncated" if said[0] > chain[0] else "inserted" if said[0] < chain[0] else "rewritten"
        raise Fault(kind, {"truncated": chain[0] + 1, "inserted": said[0] + 1}.get(kind, max(1, chain[0])))

def verify(data, keys):
    *lines, rest = data.split(b"\n")
    header = parse(lines[0] if lines else b"", "format", "orgId", "anchor", "keys")
    if not header or header["format"] != "svc-audit-chain/1":
        raise Fault("unreadable", 1, "unverifiable")
    org, anchor = header["orgId"], header.get("anchor")
    trusted = extended(keys or [], header.get("keys", [])) or None
    seq, stack, head, end, doubts = 0, [], "0" * 64, None, []
    if anchor:
        seq, root, head = opened(anchor["note"], org, True, trusted, 1, doubts)
        sizes = [1 << bit for bit in range(53, -1, -1) if seq >> bit & 1]
        stack = list(zip(sizes, map(unbase64, anchor["tree"])))
        whole = len(sizes) == len(anchor["tree"]) and all(len(one or b"") == 32 for _, one in stack)
        if not whole or root_of(stack) != root:
            raise Fault("altered", 1)
    for at, line in enumerate(lines[1:] + ([rest] if trailer_of(rest) else []), 2):
        entry = None if end else entry_of(line)
        if entry and (entry["orgId"], entry["seq"], entry["prevChecksum"]) == (org, seq + 1, head):
            seq, head = seq + 1, entry["checksum"]
            push(stack, sha256(b"\x00" + line[87:-1]))
        elif end:
            raise Fault("inserted", seq + 1)
        else:
            end = trailer_of(line) if entry is None else None
            if not end:
                raise Fault(misfit(entry, org, seq + 1, head, lines[at:], anchor), seq + 1)
    if not end or (rest and not trailer_of(rest)):
        raise Fault("unreadable", seq + 1, "unverifiable")
    compare((end["head"]["seq"], end["head"]["checksum"]), (seq, head))
    if "checkpoint" in end:
        size, root, checksum = opened(end["checkpoint"], org, False, trusted, seq + 1, doubts)
        compare((size, checksum), (seq, head))
        if root != root_of(stack):
            raise Fault("forked", seq + 1)
    elif keys:
        doubts.append(("unverifiable", "unsigned", seq + 1))
    return doubts[0] if doubts else None

def read_key(text):
    name, number, material = re.fullmatch(r"(?:([^\s+]+)\+([0-9a-f]{8})\+)?(\S+)", text).groups()
    data = unbase64(material) or b""
    key = data[1:] if name and data[:1] == b"\x01" else data
    if len(key) != 32 or (name and (len(data) != 33 or key_id(name, key).hex() != number)):
        raise ValueError("no key: " + text)
    return key
def main(path, keyfile=None):
    try:
        said = [re.sub(r"(^|\s)#.*$", "", line).strip() for line in open(keyfile)] if keyfile else []
        keys = [read_key(text) for text in said if text] or (keyfile and read_key(""))
    except (AttributeError, OSError, ValueError):
        raise Fault("unknown_key", 1, "unverifiable")
    return verify(open(path, "rb").read(), keys)

try:
    found = main(*sys.argv[1:3]) or ("sound", None, None)
except Fault as fault:
    found = (fault.verdict, fault.kind, fault.seq)
print(json.dumps(dict(zip(("verdict", "kind", "seq"), found))))
sys.exit({"sound": 0, "tampered": 1}.get(found[0], 9))
