package tokenstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// The layout of a mark's record, all numbers big-endian:
//
//	 0  version   1 byte, recordVersion
//	 1  format    1 byte, the number of a fencing.Format
//	 2  flags     1 byte, flagDraining and flagHeld; other bits are 0
//	 3  reserved  1 byte, 0
//	 4  epoch     4 bytes; a program that knows none refuses any but 0
//	 8  token     16 bytes, high part first
//	24  at        8 bytes, Unix time in milliseconds; 0 if unknown
//	32  by, policy, reason: 2 bytes of length and that many bytes each
//	 n  with flagHeld only: ttl, 8 bytes, in nanoseconds; holder, 2 bytes of length and that many bytes
//	 n  crc32c    4 bytes, over the Badger key and everything before it
const (
	recordVersion = 1
	recordFixed   = 32
	flagDraining  = 1 << 0
	flagHeld      = 1 << 1 // a program that knows of no holds refuses the record

	maxBy     = 128 // bytes; longer text is cut
	maxPolicy = 128
	maxReason = 512
	// maxHeldReason is that of a mark with a holder, whose id takes the place. The reason is an operator's, who makes no holds.
	maxHeldReason = maxReason - heldFixed - fencing.MaxOpaqueLen
	heldFixed     = 8 + 2

	// maxRecord stays below valueThreshold: a value that Badger moves to its value log has another durability.
	maxRecord = recordFixed + 3*2 + maxBy + maxPolicy + maxReason + 4
)

// Badger keys are a kind and a name.
const (
	kindMark = "r/" // followed by the resource
	kindMeta = "p/" // followed by the caller's name
	keySeq   = "m/seq"
	keyID    = "m/id"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends the checksum over key and value.
func seal(key string, value []byte) []byte {
	c := crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)
	return binary.BigEndian.AppendUint32(value, c)
}

// unseal checks and removes what seal appended.
func unseal(key string, raw []byte) ([]byte, error) {
	if len(raw) < 5 {
		return nil, damaged("record %q is %d bytes long", key, len(raw))
	}
	body, sum := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	if crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, body) != sum {
		return nil, damaged("record %q has a wrong checksum", key)
	}
	return body, nil
}

// normalise returns m as a record keeps it: time in whole milliseconds, texts of bounded length.
func normalise(m fencing.Mark) fencing.Mark {
	if ms := m.At.UnixMilli(); m.At.IsZero() || ms <= 0 {
		m.At = time.Time{}
	} else {
		m.At = time.UnixMilli(ms).UTC()
	}
	most := maxReason
	if m.Holder == "" {
		m.TTL = 0
	} else {
		most = maxHeldReason
	}
	m.By, m.Policy, m.Reason, m.Holder = cut(m.By, maxBy), cut(m.Policy, maxPolicy), cut(m.Reason, most), strings.Clone(m.Holder)
	return m
}

// cut returns s as valid UTF-8 of at most n bytes, in memory of its own. A longer text ends at a rune boundary.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.Clone(s)
}

// encodeMark returns the record of a normalised mark.
func encodeMark(key string, m fencing.Mark) []byte {
	b := make([]byte, recordFixed, recordFixed+3*2+len(m.By)+len(m.Policy)+len(m.Reason)+heldFixed+len(m.Holder)+4)
	b[0], b[1] = recordVersion, byte(m.Format)
	if m.Draining {
		b[2] |= flagDraining
	}
	binary.BigEndian.PutUint32(b[4:], m.Token.Epoch)
	binary.BigEndian.PutUint64(b[8:], m.Token.Hi)
	binary.BigEndian.PutUint64(b[16:], m.Token.Lo)
	if !m.At.IsZero() {
		binary.BigEndian.PutUint64(b[24:], uint64(m.At.UnixMilli()))
	}
	texts := [...]string{m.By, m.Policy, m.Reason, m.Holder}
	for i, s := range texts {
		if i == 3 {
			if s == "" {
				break
			}
			b[2] |= flagHeld
			b = binary.BigEndian.AppendUint64(b, uint64(m.TTL))
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return seal(key, b)
}

// decodeMark reads a record. Whatever it does not know is an error: a record that cannot be read is not an absent one.
func decodeMark(key string, raw []byte) (m fencing.Mark, err error) {
	body, err := unseal(key, raw)
	if err != nil {
		return m, err
	}
	if body[0] != recordVersion {
		return m, damaged("record %q has version %d and this program knows %d: run the release that wrote it", key, body[0], recordVersion)
	}
	if len(body) < recordFixed {
		return m, damaged("record %q is %d bytes long", key, len(raw))
	}
	if body[2]&^(flagDraining|flagHeld) != 0 || body[3] != 0 {
		return m, damaged("record %q uses fields that this program does not know: run the release that wrote it", key)
	}
	ms := binary.BigEndian.Uint64(body[24:])
	if ms > math.MaxInt64 {
		return m, damaged("record %q has an impossible time", key)
	}
	m = fencing.Mark{
		Token: fencing.Token{
			Epoch: binary.BigEndian.Uint32(body[4:]), Hi: binary.BigEndian.Uint64(body[8:]), Lo: binary.BigEndian.Uint64(body[16:]),
		},
		Format:   fencing.Format(body[1]),
		Draining: body[2]&flagDraining != 0,
	}
	if ms != 0 {
		m.At = time.UnixMilli(int64(ms)).UTC()
	}
	rest := body[recordFixed:]
	text := func() (s string) {
		if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			err = damaged("record %q ends early", key)
			rest = nil
			return ""
		}
		n := 2 + int(binary.BigEndian.Uint16(rest))
		s, rest = string(rest[2:n]), rest[n:]
		return s
	}
	m.By, m.Policy, m.Reason = text(), text(), text()
	if body[2]&flagHeld != 0 {
		if len(rest) < heldFixed {
			return fencing.Mark{}, damaged("record %q ends early", key)
		}
		m.TTL = time.Duration(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
		m.Holder = text()
		if err == nil && (m.Holder == "" || m.TTL < 0) {
			err = damaged("record %q speaks of an impossible hold", key)
		}
	}
	switch {
	case err != nil:
		return fencing.Mark{}, err
	case len(rest) != 0:
		return fencing.Mark{}, damaged("record %q has %d bytes too many", key, len(rest))
	}
	return m, nil
}

// seqRecord is the value of keySeq, rewritten in every transaction: it numbers the batches and sums up what the store holds, so
// that records which vanish or fall back to an older value contradict it. See [Store.verify].
type seqRecord struct {
	seq   uint64 // number of the last batch; firstSeq in a new store
	marks uint64 // number of records of kindMark
	sum   uint64 // sum of digest over the records of kindMark and kindMeta
}

const (
	firstSeq      = 1
	seqRecordSize = 1 + 3*8
)

func (r seqRecord) encode() []byte {
	b := make([]byte, 1, seqRecordSize+4)
	b[0] = recordVersion
	for _, n := range []uint64{r.seq, r.marks, r.sum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return seal(keySeq, b)
}

func decodeSeq(raw []byte) (r seqRecord, err error) {
	body, err := unseal(keySeq, raw)
	if err != nil {
		return r, err
	}
	if len(body) != seqRecordSize || body[0] != recordVersion {
		return r, damaged("its batch counter has version %d and this program knows %d: run the release that wrote it", body[0], recordVersion)
	}
	return seqRecord{
		seq:   binary.BigEndian.Uint64(body[1:]),
		marks: binary.BigEndian.Uint64(body[9:]),
		sum:   binary.BigEndian.Uint64(body[17:]),
	}, nil
}

const (
	maxMetaName  = 1024
	maxMetaValue = 768
)

func encodeMeta(key, value string) []byte {
	return seal(key, append([]byte{recordVersion}, value...))
}

func decodeMeta(key string, raw []byte) (string, error) {
	body, err := unseal(key, raw)
	if err != nil {
		return "", err
	}
	if body[0] != recordVersion {
		return "", damaged("record %q has version %d and this program knows %d: run the release that wrote it", key, body[0], recordVersion)
	}
	return string(body[1:]), nil
}

func checkMeta(name, value string) error {
	if name == "" || len(name) > maxMetaName || len(value) > maxMetaValue {
		return fmt.Errorf("meta %q: a name has 1 to %d bytes and a value at most %d: %w", cut(name, 64), maxMetaName, maxMetaValue, ErrTooLarge)
	}
	return nil
}
