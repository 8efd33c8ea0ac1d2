package probe

import (
	"errors"
	"fmt"
)

// ErrTooMany is returned by [Probe.Run] when the store would need more requests than a probe sends.
var ErrTooMany = errors.New("the probe has sent as many requests as it may")

// ErrFenceproxy is returned by [Probe.Run] when a fenceproxy answers instead of a store.
var ErrFenceproxy = errors.New("a fenceproxy answers there, not a store")

// ConfigError is returned by [New] for settings that cannot be used.
type ConfigError struct {
	Setting string // "URL", "header"
	Reason  string
	Hint    string // what to write instead; may be empty
}

func (e *ConfigError) Error() string { return e.Setting + ": " + e.Reason }

// StoreError is returned by [Probe.Run] when the store does not take the object that every check begins with.
type StoreError struct {
	Method, Target string
	Status         int    // what it answered; with 2xx, the object could not be read back
	Body           string // the beginning of its answer
	Hint           string // what may help
}

func (e *StoreError) Error() string {
	if e.Status/100 == 2 {
		return fmt.Sprintf("the store answered %s %s with %d, but does not give the object back as it was sent", e.Method, e.Target, e.Status)
	}
	text := fmt.Sprintf("the store answered %s %s with %d", e.Method, e.Target, e.Status)
	if e.Body != "" {
		text += fmt.Sprintf(": %q", e.Body)
	}
	return text
}

// SilentError is returned by [Probe.Run] when the store cannot be reached or stops answering.
type SilentError struct {
	Method, Target string
	Err            error
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("no answer to %s %s: %v", e.Method, e.Target, e.Err)
}

func (e *SilentError) Unwrap() error { return e.Err }
