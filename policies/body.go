package policies

import (
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// MaxBodyKeyBytes is the size of the largest body from which a resource template reads.
const MaxBodyKeyBytes = 1 << 20

// MaxBody is how many bytes of its body [Decision.ResolveBody] looks at, at most.
func (d *Decision) MaxBody() int {
	if d.targets != nil {
		return dialect.MaxBody
	}
	return MaxBodyKeyBytes
}

// ResolveBody fills d.Resources from the body of a request whose decision has NeedsBody. A field that is missing, empty, doubled or
// neither a string nor a whole number is a [*BodyError], never an empty or a guessed key; more resources than the policy's max_batch are a
// [*BatchError]. It does nothing where NeedsBody is false.
func (d *Decision) ResolveBody(body []byte) error {
	if !d.NeedsBody {
		return nil
	}
	if d.encoded {
		return &BodyError{Policy: d.Policy.Name, Reason: "it is sent with a Content-Encoding, which the proxy does not undo; send it plain"}
	}
	if len(body) > d.MaxBody() {
		return &BatchError{Policy: d.Policy.Name, Reason: fmt.Sprintf("its resources are named in the body, and that is larger than %d bytes", d.MaxBody())}
	}
	resources := append([]fencing.Resource(nil), d.known...)
	for _, wait := range d.pending {
		keys, err := d.pendingKeys(wait, body)
		if err != nil {
			return err
		}
		resources = append(resources, keys...)
	}
	if d.targets != nil {
		keys, err := d.targets(body)
		if err != nil {
			return err
		}
		resources = append(resources, keys...)
	}
	resources = sorted(resources)
	if most := d.Policy.MaxBatch; len(resources) > most {
		return &BatchError{Policy: d.Policy.Name, Reason: fmt.Sprintf("it names %d resources, and max_batch allows %d", len(resources), most)}
	}
	d.Resources, d.NeedsBody = resources, false
	if err := d.covered(); err != nil {
		return err
	}
	return d.Policy.single(d)
}

// pendingKeys returns the keys of one template: one, or as many as the list in the body has elements.
func (d *Decision) pendingKeys(wait pending, body []byte) ([]fencing.Resource, error) {
	keys := []string{""}
	for _, pt := range wait {
		if pt.kind != partBody {
			for i := range keys {
				keys[i] += pt.text
			}
			continue
		}
		values, reason := d.bodyValues(pt.field, body)
		if reason != "" {
			return nil, &BodyError{Policy: d.Policy.Name, Field: fieldText(pt.field), Reason: reason}
		}
		if len(values)*len(keys) > d.Policy.MaxBatch && len(values) > 1 {
			return nil, &BatchError{Policy: d.Policy.Name, Reason: fmt.Sprintf("its body names %d resources, and max_batch allows %d", len(values), d.Policy.MaxBatch)}
		}
		grown := make([]string, 0, len(keys)*len(values))
		for _, key := range keys {
			for _, v := range values {
				grown = append(grown, string(appendEscaped([]byte(key), v)))
			}
		}
		keys = grown
	}
	out := make([]fencing.Resource, len(keys))
	for i, key := range keys {
		out[i] = fencing.Resource(key)
		if err := out[i].Check(); err != nil {
			return nil, &BodyError{Policy: d.Policy.Name, Reason: "the key that it gives is unusable: " + err.Error()}
		}
	}
	return out, nil
}

// bodyValues reads a field. The operations of a JSON Patch name what they change as path, and what they move as from.
func (d *Decision) bodyValues(field []string, body []byte) ([]string, string) {
	if d.jsonPatch && strings.Join(field, ".") == "[].path" {
		return dialect.JSONPatchPaths(body)
	}
	return dialect.JSONStrings(body, field)
}

// isEncoded reports whether the body is compressed or framed in a way that the store undoes.
func isEncoded(r *Request) bool {
	return slices.ContainsFunc(r.Header["Content-Encoding"], func(v string) bool {
		return v != "" && !strings.EqualFold(strings.TrimSpace(v), "identity")
	})
}

// isJSONPatch reports whether the body is a JSON Patch (RFC 6902).
func isJSONPatch(r *Request) bool {
	for _, v := range r.Header["Content-Type"] {
		if kind, _, err := mime.ParseMediaType(v); err == nil && kind == "application/json-patch+json" {
			return true
		}
	}
	return false
}

// fieldText writes a field as a template does: body.items[].id.
func fieldText(field []string) string {
	return "body" + strings.ReplaceAll("."+strings.Join(field, "."), ".[]", "[]")
}

// parseField reads what stands after body in a placeholder: ".order.id", ".items[].id" or "[].id". It returns nil if that is no field.
func parseField(text string) []string {
	if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[].") {
		return nil
	}
	field := strings.Split(strings.TrimPrefix(strings.ReplaceAll(text, "[]", ".[]"), "."), ".")
	lists := 0
	for i, part := range field {
		switch {
		case part == "[]":
			lists++
		case part == "" || strings.ContainsAny(part, "[]"):
			return nil
		}
		if part == "[]" && i > 0 && field[i-1] == "[]" {
			return nil
		}
	}
	if lists > 1 {
		return nil
	}
	return field
}

// NamesOthers reports whether the body names objects that may be other policies', and not only the resource of the request's own path.
func (d *Decision) NamesOthers() bool { return d.targets != nil }
