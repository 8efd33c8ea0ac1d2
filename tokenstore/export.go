package tokenstore

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// exportLine is one mark in an export. Token is decimal, or a pair such as "7.1042", whatever the format: hexadecimal and znode
// names are other spellings of the same number.
type exportLine struct {
	Resource string     `json:"resource"`
	Token    string     `json:"token"`
	Epoch    uint32     `json:"epoch,omitempty"`
	Format   string     `json:"format,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	By       string     `json:"by,omitempty"`
	Policy   string     `json:"policy,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Draining bool       `json:"draining,omitempty"`
	Holder   string     `json:"holder,omitempty"`
	TTL      string     `json:"ttl,omitempty"` // of a hold that expires: "30s"
}

// trailer is the last line of an export. Without it the export is not whole.
type trailer struct {
	Trailer int    `json:"trailer"` // version of the export's form
	Store   string `json:"store"`   // id of the store that wrote it
	Marks   uint64 `json:"marks"`   // lines before this one
	Seq     uint64 `json:"seq"`     // batch after which it was taken
	SHA256  string `json:"sha256"`  // of all bytes before this line
}

const exportVersion = 1

// Export writes all marks, as they were at one moment, as JSON Lines sorted by resource, and a last line that tells whether the
// others are whole and unaltered. Writers go on meanwhile. What w got before an error is not an export: it has no last line.
func (s *Store) Export(w io.Writer) error { return s.exported(w, true) }

// ExportWithoutHolders is Export for those who may not see the ids of holders: it ends with [ErrHolders] at the first mark that has one.
func (s *Store) ExportWithoutHolders(w io.Writer) error { return s.exported(w, false) }

func (s *Store) exported(w io.Writer, holders bool) error {
	if err := s.export(w, holders); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

func (s *Store) export(w io.Writer, holders bool) error {
	buf := bufio.NewWriter(w)
	hash := sha256.New()
	lines := json.NewEncoder(io.MultiWriter(buf, hash))
	lines.SetEscapeHTML(false)
	err := s.view(func(txn *badger.Txn) error {
		raw, err := get(txn, keySeq)
		if err != nil {
			return err
		}
		head, err := decodeSeq(raw)
		if err != nil {
			return err
		}
		end := trailer{Trailer: exportVersion, Store: s.id, Seq: head.seq}
		err = eachRecord(txn, kindMark, func(key string, raw []byte) error {
			m, err := decodeMark(key, raw)
			if err != nil {
				return err
			}
			if m.Holder != "" && !holders {
				return ErrHolders
			}
			end.Marks++
			return lines.Encode(toLine(fencing.ResourceMark{Resource: fencing.Resource(key[len(kindMark):]), Mark: m}))
		})
		if err != nil {
			return err
		}
		if end.Marks != head.marks {
			return s.fail(damaged("the store holds %d marks and should hold %d: %s", end.Marks, head.marks, recoverHint))
		}
		end.SHA256 = hex.EncodeToString(hash.Sum(nil))
		return json.NewEncoder(buf).Encode(end)
	})
	if err != nil {
		return err
	}
	return buf.Flush()
}

func toLine(m fencing.ResourceMark) exportLine {
	l := exportLine{
		Resource: string(m.Resource),
		Token:    m.Mark.Token.In(0).String(),
		Epoch:    m.Mark.Token.Epoch,
		By:       m.Mark.By,
		Policy:   m.Mark.Policy,
		Reason:   m.Mark.Reason,
		Draining: m.Mark.Draining,
	}
	if m.Mark.Holder != "" {
		l.Holder = m.Mark.Holder
		if m.Mark.TTL != 0 {
			l.TTL = m.Mark.TTL.String()
		}
	}
	if m.Mark.Format.Valid() {
		l.Format = m.Mark.Format.String()
	}
	if !m.Mark.At.IsZero() {
		l.At = &m.Mark.At
	}
	return l
}

func (l exportLine) mark() (m fencing.ResourceMark, err error) {
	m.Resource = fencing.Resource(l.Resource)
	if err := m.Resource.Check(); err != nil {
		return m, err
	}
	spelling := fencing.Decimal
	if strings.Contains(l.Token, ".") {
		spelling = fencing.Pair
	}
	if m.Mark.Token, err = spelling.Parse(l.Token); err != nil {
		return m, err
	}
	m.Mark.Token.Epoch = l.Epoch
	if l.Format != "" {
		if m.Mark.Format, err = fencing.ParseFormat(l.Format); err != nil {
			return m, err
		}
	}
	if l.Holder != "" {
		if _, err := fencing.Opaque.Parse(l.Holder); err != nil {
			return m, err
		}
		m.Mark.Holder = l.Holder
	}
	if l.TTL != "" {
		if m.Mark.TTL, err = time.ParseDuration(l.TTL); err != nil || m.Mark.TTL <= 0 || l.Holder == "" {
			return m, fmt.Errorf("%q is not the time to live of a hold", l.TTL)
		}
	}
	if l.At != nil {
		m.Mark.At = *l.At
	}
	m.Mark.By, m.Mark.Policy, m.Mark.Reason, m.Mark.Draining = l.By, l.Policy, l.Reason, l.Draining
	return m, nil
}
