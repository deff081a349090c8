"""Reduces a GPU core to a fixture: reduce_core.py CORE OUT.gz OWN [OWN...]

What stays: all tables (devices, contexts, grids, warps, lanes), the arguments of kernels, and the images of those kernels whose
name has one of OWN in it: the project's own. Of other images there stay the names, addresses and sizes of the functions in which
something ran, and their line tables; of the others nothing. Registers, predicates and memory go. Needs only Python."""
import gzip
import struct
import sys

HEADER, SECTION, SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
LOUSER, STRINGS, SYMBOLS, NO_BITS, FUNCTION = 0x80000000, 3, 2, 8, 2
# Kinds of sections by the number after SHT_LOUSER (cudacoredump.h of CUDA 13.0).
IMAGE, BACKTRACE, DEVICES, CONTEXTS, SMS, GRIDS, BLOCKS, WARPS, LANES, MODULES, ARGUMENTS, META = 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 22
KEPT = {IMAGE, BACKTRACE, DEVICES, CONTEXTS, SMS, GRIDS, BLOCKS, WARPS, LANES, MODULES, ARGUMENTS, META}
LINES = (b".debug_line", b".nv_debug_line_sass", b".debug_str", b".debug_line_str")


class Elf:
    """Sections of an ELF file of 64 bits: [name, header fields, bytes]."""

    def __init__(self, data):
        self.header = list(HEADER.unpack_from(data))
        offset, count, names = self.header[6], self.header[12], self.header[13]
        headers = [list(SECTION.unpack_from(data, offset + 64 * index)) for index in range(max(count, 1))]
        if count == 0:  # more sections than the header can say
            count, names = headers[0][5], headers[0][6]
            headers = [list(SECTION.unpack_from(data, offset + 64 * index)) for index in range(count)]
        strings = headers[names]
        table = data[strings[4]:strings[4] + strings[5]]
        self.sections = []
        for fields in headers:
            content = b"" if fields[1] == NO_BITS else data[fields[4]:fields[4] + fields[5]]
            self.sections.append([table[fields[0]:table.index(b"\0", fields[0])], fields, content])

    def kind(self, section):
        return section[1][1] - LOUSER if section[1][1] >= LOUSER else None

    def functions(self):
        """(name, fields) of each function."""
        for section in self.sections:
            if section[1][1] == SYMBOLS:
                strings = self.sections[section[1][6]][2]
                for at in range(0, len(section[2]) - 23, 24):
                    fields = SYMBOL.unpack_from(section[2], at)
                    if fields[1] & 15 == FUNCTION:
                        yield strings[fields[0]:strings.index(b"\0", fields[0])], fields

    def write(self, kept):
        """An ELF file of these sections, by their indexes; links go along, the names are the last section."""
        places = {old: new for new, old in enumerate(kept)}
        names, out, headers = b"\0", bytearray(64), []
        for old in kept:
            name, fields, content = self.sections[old]
            fields = list(fields)
            fields[0] = len(names) if name else 0
            names += name + b"\0" if name else b""
            while len(out) % 8:
                out += b"\0"
            fields[4], fields[6] = len(out) if old else 0, places.get(fields[6], 0)
            if fields[1] != NO_BITS and old:
                fields[5] = len(content)
                out += content
            headers.append(fields)
        headers.append([len(names), STRINGS, 0, 0, len(out), 0, 0, 0, 1, 0])
        names += b".shstrtab\0"
        headers[-1][5] = len(names)
        out += names
        while len(out) % 8:
            out += b"\0"
        header = list(self.header)
        header[6], header[12], header[13] = len(out), len(headers), len(headers) - 1
        if len(headers) >= 0xff00:
            header[12], header[13] = 0, 0xffff
            headers[0][5], headers[0][6] = len(headers), len(headers) - 1
        out[:64] = HEADER.pack(*header)
        for fields in headers:
            out += SECTION.pack(*fields)
        return bytes(out)


def ran(core):
    """The addresses at which something ran, or failed."""
    found = set()
    for section in core.sections:
        kind, size, content = core.kind(section), section[1][9], section[2]
        for at in range(0, len(content) - size + 1, size) if size else ():
            if kind == GRIDS:
                found.add(struct.unpack_from("<Q", content, at + 24)[0])
            elif kind in (LANES, WARPS):
                found.add(struct.unpack_from("<Q", content, at)[0])
            elif kind == BACKTRACE:
                found.add(struct.unpack_from("<Q", content, at + 8)[0])
            elif kind == SMS and size >= 24:
                found.add(struct.unpack_from("<Q", content, at + 16)[0])
    return found - {0}


def names_alone(image, addresses):
    """An image of the functions in which something ran; None where nothing did."""
    kept = [(name, fields) for name, fields in image.functions()
            if any(fields[4] <= address < fields[4] + max(fields[5], 1) for address in addresses)]
    if not kept:
        return None
    strings, symbols = b"\0", bytes(24)
    for name, fields in kept:
        symbols += SYMBOL.pack(len(strings), fields[1], fields[2], 0xfff1, fields[4], fields[5])
        strings += name + b"\0"
    small = Elf.__new__(Elf)
    small.header = list(image.header)
    small.header[5] = small.header[10] = 0  # no program headers
    small.sections = [[b"", [0] * 10, b""],
                      [b".symtab", [0, SYMBOLS, 0, 0, 0, 0, 2, 1, 8, 24], symbols],
                      [b".strtab", [0, STRINGS, 0, 0, 0, 0, 0, 0, 1, 0], strings]]
    small.sections += [section for section in image.sections if section[0] in LINES and len(section[2]) < 1 << 18]
    return small.write(range(len(small.sections)))


def reduce(path, out, own):
    with open(path, "rb") as file:
        core = Elf(file.read())
    addresses, kept = ran(core), []
    own = [name.encode() for name in own]
    shstrtab = next((index for index, section in enumerate(core.sections) if section[0] == b".shstrtab"), None)
    for index, section in enumerate(core.sections):
        kind = core.kind(section)
        if index == shstrtab or (kind is not None and kind not in KEPT):
            continue
        if kind == BACKTRACE and not section[2]:
            continue
        if kind == IMAGE:
            try:
                image = Elf(section[2])
                ours = any(word in name for name, _ in image.functions() for word in own)
                section[2] = section[2] if ours else names_alone(image, addresses)
            except (struct.error, ValueError, IndexError) as error:
                sys.stderr.write("%s: an image is not understood: %s\n" % (path, error))
                section[2] = None
            if section[2] is None:
                continue
        kept.append(index)
    with gzip.GzipFile(out, "wb", 9, mtime=0) as file:
        file.write(core.write(kept))


if __name__ == "__main__":
    reduce(sys.argv[1], sys.argv[2], sys.argv[3:])
