//! SVG in viewers that are no browsers: each colour is an attribute, and the picture is not one colour where librsvg draws it.

use std::process::Command;

use crate::harness::{lockscope, skipped, testdata};

#[test]
fn librsvg_draws_more_than_one_colour() {
    let folder = tempfile::tempdir().expect("a folder");
    let (svg, png) = (folder.path().join("hang.svg"), folder.path().join("hang.png"));
    let snapshot = testdata("gpu/occupancy-launch.snapshot.zst");
    let output = lockscope().arg("core").arg(snapshot).arg("-o").arg(&svg).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!std::fs::read_to_string(&svg).expect("written").contains("var("));
    match Command::new("rsvg-convert").arg("-o").arg(&png).arg(&svg).status() {
        Err(_) => return skipped!("no rsvg-convert"),
        Ok(status) => assert!(status.success()),
    }
    // Boxes of white and pale red, lines of red and grey, words: a picture of black boxes has far fewer bytes, and fewer colours.
    const COLOURS: &str = "import struct, sys, zlib
data = open(sys.argv[1], 'rb').read()
at, packed, wide = 8, b'', 0
while at < len(data):
    length, kind = struct.unpack('>I4s', data[at:at + 8])
    body = data[at + 8:at + 8 + length]
    if kind == b'IHDR':
        wide, high, depth, color = struct.unpack('>IIBB', body[:10])
        assert depth == 8 and color in (2, 6), (depth, color)
        size = 4 if color == 6 else 3
    packed += body if kind == b'IDAT' else b''
    at += 12 + length
raw, step = zlib.decompress(packed), size * wide + 1
before, seen = bytearray(size * wide), set()
for row in range(high):
    kind, line = raw[row * step], bytearray(raw[row * step + 1:(row + 1) * step])
    for i in range(len(line)):
        a, b, c = line[i - size] if i >= size else 0, before[i], before[i - size] if i >= size else 0
        p = a + b - c
        paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
    seen.update(zip(line[0::size], line[1::size], line[2::size]))
    before = line
print(' '.join('%02x%02x%02x' % color for color in seen))
";
    let output = Command::new("python3").args(["-c", COLOURS]).arg(&png).output().expect("python3 runs");
    let colours = String::from_utf8_lossy(&output.stdout).into_owned();
    for colour in ["ffffff", "c01a24", "fff0ee"] {
        assert!(colours.contains(colour), "{colour} is not in the picture: {output:?}");
    }
}
