package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes = 4 << 20
	maxNodes     = 200_000 // values visited, aliases followed: bounds a file that multiplies itself through them
	maxPolicies  = 1000
	maxProblems  = 500 // more would help nobody
	maxDuration  = 24 * time.Hour
)

// loader collects the problems of one file.
type loader struct {
	file     string
	readKey  KeyReader // nil: key files are not read
	problems []Problem
	warnings []Problem
	nodes    int
	overflow bool
}

func (l *loader) report(p Problem) {
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, p)
	}
}

// full reports, once, that the file has become too large; nothing more is read from it then.
func (v value) full() bool {
	if v.l.nodes <= maxNodes {
		return false
	}
	if !v.l.overflow {
		v.l.overflow = true
		v.errorf("", "the file is too large once its aliases are followed")
	}
	return true
}

// value is a node of the file with its path. A value without a node stands for a flag or a missing file.
type value struct {
	l    *loader
	node *yaml.Node // never an alias
	path string
}

func (v value) problem(hint, format string, args ...any) Problem {
	p := Problem{Path: v.path, Message: fmt.Sprintf(format, args...), Hint: hint}
	if v.node != nil {
		p.File, p.Line, p.Column = v.l.file, v.node.Line, v.node.Column
	}
	return p
}

func (v value) errorf(hint, format string, args ...any) { v.l.report(v.problem(hint, format, args...)) }

func (v value) warnf(hint, format string, args ...any) {
	v.l.warnings = append(v.l.warnings, v.problem(hint, format, args...))
}

func (v value) child(node *yaml.Node, path string) value {
	v.l.nodes++
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return value{l: v.l, node: node, path: path}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// parse returns the root of the only document in data; ok is false if there is none.
func (l *loader) parse(data []byte) (root value, ok bool) {
	syntax := func(err error) {
		m := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
		line, _ := strconv.Atoi(m[1])
		l.report(Problem{File: l.file, Line: line, Column: min(line, 1), Message: "not valid YAML: " + m[2]})
	}
	if len(data) > maxFileBytes {
		l.report(Problem{File: l.file, Message: fmt.Sprintf("the file is larger than %d bytes", maxFileBytes)})
		return value{}, false
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return value{}, false
	} else if err != nil {
		syntax(err)
		return value{}, false
	}
	if err := dec.Decode(&next); err == nil {
		l.report(Problem{File: l.file, Line: next.Line, Column: next.Column, Message: "a second YAML document starts here", Hint: "a file holds one document"})
	} else if !errors.Is(err, io.EOF) {
		syntax(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return value{}, false
	}
	root = value{l: l}.child(doc.Content[0], "")
	if root.node.Kind == yaml.ScalarNode && root.node.Tag == "!!null" {
		return value{}, false
	}
	return root, true
}

// section is a mapping whose keys are known.
type section struct {
	value
	keys map[string]value
}

func (s section) has(key string) bool { _, ok := s.keys[key]; return ok }

// at returns the value of key, or the mapping itself where the key is absent: the place to report it missing.
func (s section) at(key string) value {
	if v, ok := s.keys[key]; ok {
		return v
	}
	return value{l: s.l, node: s.node, path: join(s.path, key)}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// misplaced tells where keys belong that are often written one level too high or too low.
var misplaced = map[string]string{
	"path": "match", "methods": "match", "host": "match", "method": "match", "header": "token or match", "format": "token", "max": "token or spool",
	"url": "upstream", "timeout": "upstream", "dir": "token_store", "dot_segments": "identity", "encoded_slash": "identity", "policy": "policies",
}

// section reads a mapping. Unknown and doubled keys are reported; only known ones are returned.
func (v value) section(known ...string) section {
	s := section{value: v, keys: map[string]value{}}
	if v.node == nil {
		return s
	}
	if v.node.Kind != yaml.MappingNode {
		v.errorf("", "%s where a mapping (key: value) is expected", v.kind())
		return s
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		keyNode := v.node.Content[i]
		key := v.child(keyNode, join(v.path, keyNode.Value))
		val := v.child(v.node.Content[i+1], key.path)
		switch name := key.node.Value; {
		case v.full():
			return s
		case key.node.Kind != yaml.ScalarNode:
			key.errorf("", "a key must be plain text")
		case key.node.Tag == "!!merge":
			key.errorf("put common settings under defaults", "merge keys (<<) are not supported")
		case !slices.Contains(known, name):
			hint := suggest(name, known)
			if slices.Contains(settingKeys, name) && v.path == "limits" {
				hint = "it is a policy key: write it in a policy or under defaults"
			}
			if under := misplaced[name]; hint == "" && under != "" {
				hint = "it belongs under " + under
			}
			if hint == "" {
				hint = "known here: " + strings.Join(known, ", ")
			}
			key.errorf(hint, "unknown key %q", clip(name))
		case s.has(name):
			key.errorf("", "the key %q is given twice", name)
		case val.node.Kind == yaml.ScalarNode && val.node.Tag == "!!null":
			val.errorf("give it a value or remove the key", "it is empty")
		default:
			s.keys[name] = val
		}
	}
	return s
}

func (v value) kind() string {
	switch {
	case v.node.Kind == yaml.MappingNode:
		return "a mapping"
	case v.node.Kind == yaml.SequenceNode:
		return "a list"
	case v.node.Tag == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%q", clip(v.node.Value))
}

// plainScalar is what means the same in a list, without quotes.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// items returns the elements of a list, or the value itself where a single one may stand for a list.
func (v value) items(single bool) []value {
	if v.node.Kind != yaml.SequenceNode {
		if !single {
			hint := ""
			if v.node.Kind == yaml.ScalarNode && plainScalar.MatchString(v.node.Value) {
				hint = "write [" + v.node.Value + "]"
			}
			v.errorf(hint, "%s where a list is expected", v.kind())
			return nil
		}
		return []value{v}
	}
	out := make([]value, 0, len(v.node.Content))
	for i, n := range v.node.Content {
		if v.full() {
			return nil
		}
		out = append(out, v.child(n, fmt.Sprintf("%s[%d]", v.path, i)))
	}
	return out
}

// text returns a scalar as it is written. Numbers and booleans count as text.
func (v value) text() (string, bool) {
	if v.node.Kind == yaml.ScalarNode {
		switch v.node.Tag {
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
			return v.node.Value, true
		}
	}
	v.errorf("", "%s where text is expected", v.kind())
	return "", false
}

func (s section) text(key string, dst *string) {
	if v, ok := s.keys[key]; ok {
		if t, ok := v.text(); ok {
			if *dst = t; t == "" {
				v.errorf("give it a value or remove the key", "it is empty")
			}
		}
	}
}

func (s section) flag(key string, dst *bool) {
	v, ok := s.keys[key]
	if !ok {
		return
	}
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!bool" {
		v.errorf("", "%s where true or false is expected", v.kind())
		return
	}
	*dst = strings.EqualFold(v.node.Value, "true")
}

func (s section) duration(key string, dst *time.Duration, zero bool) {
	v, ok := s.keys[key]
	if !ok {
		return
	}
	t, ok := v.text()
	if !ok {
		return
	}
	d, err := time.ParseDuration(t)
	switch {
	case err != nil:
		v.errorf("write a number with its unit: 500ms, 30s, 2m", "%q is not a duration", clip(t))
	case d < 0 || d > maxDuration:
		allowed := "0s to 24h are allowed"
		if !zero {
			allowed = "above 0s, and at most 24h"
		}
		v.errorf("", "%s is out of range: %s", clip(t), allowed)
	case d == 0 && !zero:
		v.errorf("", "it must be longer than 0s")
	default:
		*dst = d
	}
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,18}) ?(B|KiB|MiB|GiB|TiB)?$`)

func (s section) size(key string, dst *int64) {
	v, ok := s.keys[key]
	if !ok {
		return
	}
	t, ok := v.text()
	if !ok {
		return
	}
	m := sizePattern.FindStringSubmatch(t)
	if m == nil {
		v.errorf("write bytes, or a whole number of KiB, MiB, GiB or TiB: 256MiB", "%q is not a size", clip(t))
		return
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[m[2]]
	if err != nil || n > (1<<62)>>shift {
		v.errorf("", "%s is too large", t)
		return
	}
	*dst = n << shift
}

func (v value) integer() (int, bool) {
	if t, ok := v.text(); ok {
		if n, err := strconv.ParseUint(t, 10, 31); err == nil {
			return int(n), true
		}
		v.errorf("", "%q is not a whole number", clip(t))
	}
	return 0, false
}

// choice is one value of an enumeration.
type choice[T any] struct {
	name  string
	value T
}

// enum reads one of the choices. later names values that the design has and this version does not.
func enum[T any](s section, key string, dst *T, later []string, choices ...choice[T]) {
	v, ok := s.keys[key]
	if !ok {
		return
	}
	t, ok := v.text()
	if !ok {
		return
	}
	names := make([]string, len(choices))
	for i, c := range choices {
		if c.name == t {
			*dst = c.value
			return
		}
		names[i] = c.name
	}
	if slices.Contains(later, t) {
		v.errorf("use "+strings.Join(names, " or "), "%s is not in this version", t)
		return
	}
	hint := suggest(t, names)
	v.errorf(hint, "%q is not one of %s", clip(t), strings.Join(names, ", "))
}
