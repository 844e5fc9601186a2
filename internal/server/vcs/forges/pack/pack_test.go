package pack

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// built returns a pack with objects in their encoded form.
func built(objects ...[]byte) []byte {
	raw := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(objects)))
	for _, o := range objects {
		raw = append(raw, o...)
	}
	sum := sha1.Sum(raw)
	return append(raw, sum[:]...)
}

// encoded returns an object whose header announces a size. base follows the header.
func encoded(kind Kind, size int, base, content []byte) []byte {
	b := byte(kind)<<4 | byte(size&15)
	var out []byte
	for size >>= 4; size > 0; size >>= 7 {
		out = append(out, b|0x80)
		b = byte(size & 0x7f)
	}
	out = append(append(out, b), base...)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content)
	_ = w.Close()
	return append(out, z.Bytes()...)
}

func blob(text string) []byte { return encoded(Blob, len(text), nil, []byte(text)) }

func id(text string) string {
	sum := sha1.Sum([]byte("blob " + string(rune('0'+len(text))) + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// TestDifferences computes objects from those before and after them.
func TestDifferences(t *testing.T) {
	base, _ := hex.DecodeString(id("abc"))
	next, _ := hex.DecodeString(id("abcd"))
	append1 := func(from, to int, text string) []byte {
		return append([]byte{byte(from), byte(to), 0x90, byte(from), byte(len(text))}, text...)
	}
	first := encoded(byID, 7, next, append(append1(4, 5, "e"), 0)[:6]) // of an object that follows
	p, err := Parse(built(
		encoded(byID, 6, next, append1(4, 5, "e")),
		encoded(byID, 6, base, append1(3, 4, "d")),
		blob("abc"),
	), 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"abc", "abcd", "abcde"} {
		if got, ok := p.Object(Blob, id(want)); !ok || string(got) != want {
			t.Errorf("%s: %q", want, got)
		}
		if _, ok := p.Object(Tree, id(want)); ok {
			t.Errorf("%s is a tree", want)
		}
	}
	if _, err := Parse(built(first, blob("abc")), 20); !errors.Is(err, errInvalid) {
		t.Errorf("a missing base: %v", err)
	}
}

// TestHostile parses packs that announce what they do not contain, or contain too much.
func TestHostile(t *testing.T) {
	three, _ := hex.DecodeString(id("abc"))
	diff := func(parts ...byte) []byte {
		return built(blob("abc"), encoded(byID, len(parts), three, parts))
	}
	zeros := make([]byte, 1<<20)
	many := make([][]byte, 70)
	for i := range many {
		zeros[0] = byte(i)
		many[i] = encoded(Blob, len(zeros), nil, zeros)
	}
	wrongSum := built(blob("abc"))
	wrongSum[len(wrongSum)-1] ^= 1
	crowd := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), MaxObjects+1)
	sum := sha1.Sum(crowd)
	crowd = append(crowd, sum[:]...)
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":                       {nil, errInvalid},
		"no objects where some follow":  {built()[:20], errInvalid},
		"a wrong sum":                   {wrongSum, errInvalid},
		"fewer objects than announced":  {built(blob("abc"), nil), errInvalid},
		"a size that is too small":      {built(encoded(Blob, 2, nil, []byte("abc"))), errInvalid},
		"a size that is too large":      {built(encoded(Blob, 4, nil, []byte("abc"))), errInvalid},
		"a huge size":                   {built(encoded(Blob, 1<<36, nil, []byte("abc"))), errTooLarge},
		"a bomb":                        {built(many...), errTooLarge},
		"too many objects":              {crowd, errTooLarge},
		"an unknown kind":               {built(encoded(5, 3, nil, []byte("abc"))), errInvalid},
		"no compressed data":            {built([]byte{byte(Blob)<<4 | 3, 1, 2, 3}), errInvalid},
		"a base before the pack":        {built(blob("abc"), encoded(byOffset, 3, []byte{0x7f}, []byte{3, 1, 0})), errInvalid},
		"itself as the base":            {built(encoded(byOffset, 3, []byte{0}, []byte{3, 1, 0})), errInvalid},
		"a base of another size":        {diff(4, 1, 0x90, 1), errInvalid},
		"a copy beyond the base":        {diff(3, 4, 0x90, 4), errInvalid},
		"a copy from beyond the base":   {diff(3, 1, 0x91, 9, 1), errInvalid},
		"a copy without its length":     {diff(3, 1, 0x91), errInvalid},
		"an insertion that is cut":      {diff(3, 4, 4, 'a'), errInvalid},
		"more than announced":           {diff(3, 2, 0x90, 3), errInvalid},
		"less than announced":           {diff(3, 9, 0x90, 3), errInvalid},
		"a reserved instruction":        {diff(3, 1, 0), errInvalid},
		"a huge result of a difference": {diff(3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x90, 3), errTooLarge},
	} {
		if _, err := Parse(c.raw, 20); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEntries(t *testing.T) {
	one := strings.Repeat("\x01", 20)
	content := "100644 file\x00" + one + "40000 folder\x00" + one + "120000 link\x00" + one + "160000 module\x00" + one
	p := &Pack{objects: map[string]object{strings.Repeat("a", 40): {Tree, []byte(content)}, strings.Repeat("b", 40): {Tree, []byte(content[:len(content)-1])}, strings.Repeat("c", 40): {Tree, []byte("name")}}}
	got, err := p.Entries(strings.Repeat("a", 40))
	if err != nil || len(got) != 4 || !got[0].Regular || !got[1].Folder || got[2].Regular || got[2].Folder || got[3].Regular || got[3].Folder {
		t.Errorf("%+v, %v", got, err)
	}
	for _, id := range []string{"b", "c", "d"} {
		if _, err := p.Entries(strings.Repeat(id, 40)); err == nil {
			t.Errorf("an invalid tree %s was read", id)
		}
	}
	if _, err := p.Root(strings.Repeat("a", 40)); err == nil {
		t.Error("a tree was taken for a commit")
	}
}

func FuzzParse(f *testing.F) {
	three, _ := hex.DecodeString(id("abc"))
	f.Add(built(blob("abc"), encoded(byID, 4, three, []byte{3, 3, 0x90, 3})))
	f.Add(built(blob("abc"), encoded(byOffset, 4, []byte{12}, []byte{3, 3, 0x90, 3})))
	f.Add(built())
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if len(raw) >= 20 { // so that not only the sum is tested
			sum := sha1.Sum(raw[:len(raw)-20])
			raw = append(bytes.Clone(raw[:len(raw)-20]), sum[:]...)
		}
		if p, err := Parse(raw, 20); err == nil {
			for id := range p.objects {
				_, _ = p.Entries(id)
				_, _ = p.Root(id)
			}
		}
	})
}
