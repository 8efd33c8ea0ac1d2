package lease

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Names of what is noted durably.
const (
	notePrefix = "lease/"      // + hash of the name of a lease: its note
	floorNote  = "lease-floor" // the highest number of a lease whose note was dropped
	maxNote    = 768           // bytes that a note may have
)

// key returns the name under which a lease is noted. The names of leases are of any length and hold any text.
func key(name fencing.Resource) string {
	sum := sha256.Sum256([]byte(name))
	return notePrefix + hex.EncodeToString(sum[:])
}

// note is what is kept of a lease. Without a Secret nobody holds it.
type note struct {
	Number uint64 `json:"token"`
	Secret string `json:"secret,omitempty"` // hash of the holder's
	TTL    string `json:"ttl,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Name   string `json:"name,omitempty"` // for people; left out where it is too long
}

func (n note) encode() (string, error) {
	text, err := json.Marshal(n)
	if err == nil && len(text) > maxNote {
		n.Name = ""
		text, err = json.Marshal(n)
	}
	return string(text), err
}

// decodeNote returns the note and how long a lease that is held was granted for. An error means that the tokens of the lease are unknown.
func decodeNote(text string) (n note, ttl time.Duration, err error) {
	if err = json.Unmarshal([]byte(text), &n); err == nil && n.Number == 0 {
		err = fmt.Errorf("%q has no token", text)
	}
	if err == nil && n.Secret != "" {
		if ttl, err = time.ParseDuration(n.TTL); err == nil && (ttl < MinTTL || ttl > MaxTTL) {
			err = fmt.Errorf("%q is no time for a lease", n.TTL)
		}
	}
	return n, ttl, err
}

func encodeFloor(n uint64) string { return strconv.FormatUint(n, 10) }

func decodeFloor(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// matches compares a secret with the hash of one in constant time.
func matches(secret, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(hashOf(secret)), []byte(hash)) == 1
}

// MaxToken is the highest token that is granted: the highest that a policy takes unless it says otherwise.
const MaxToken = math.MaxInt64

// next returns the token of the next grant, given the highest earlier one and the mark, if there is one. A lease counts in single numbers, on
// through all epochs: it is above its earlier grants whatever the epoch, and above the mark in the mark's own.
func next(granted uint64, mark fencing.Mark, ok bool) (fencing.Token, error) {
	t := fencing.Token{}
	if ok {
		if t = mark.Token; t.Hi != 0 || !fencing.Decimal.SameOrder(mark.Format) || !mark.Format.Valid() {
			return fencing.Token{}, &RequestError{"the tokens of the resource are no single numbers, and a lease hands out those alone"}
		}
	}
	if t.Lo = max(t.Lo, granted); t.Lo >= MaxToken {
		return fencing.Token{}, ErrExhausted
	}
	t.Lo++
	return t, nil
}
