package probe

import "time"

// Sighting and Content show the verdict function to tests.
type (
	Sighting = sighting
	Content  = content
)

// NewSighting is what was seen after writes of a and b.
func NewSighting(a, b string, status int, plain, other Content) Sighting {
	return sighting{a, b, status, plain, other}
}

// NewContent is what a read gave.
func NewContent(text string, there, clear bool) Content { return content{text, there, clear} }

// Verdict is that of the sighting.
func (s sighting) Verdict() Verdict { return s.verdict() }

// Sign signs with a payload hash, as AWS's examples do. header alternates names and values.
func Sign(c Credentials, method, target, host, payload string, now time.Time, raw bool, header ...string) string {
	form := signEncoded
	if raw {
		form = signRaw
	}
	var fields []field
	for i := 0; i+1 < len(header); i += 2 {
		fields = append(fields, field{header[i], header[i+1]})
	}
	for _, f := range (&signer{c}).signPayload(method, target, host, fields, payload, now, form) {
		if f.name == "Authorization" {
			return f.value
		}
	}
	return ""
}

// CanonicalURI is the path that a signature is over: decoded and encoded again, or as it is sent.
func CanonicalURI(target string) (encoded, raw string) {
	return canonicalURI(target, signEncoded), canonicalURI(target, signRaw)
}

// Paths returns the two ways of writing a path of each spelling below dir.
func Paths(dir, name string) map[string][2]string {
	out := map[string][2]string{}
	for _, s := range append(spellings(), flatSlash()) {
		plain, other := s.paths(dir, name)
		out[s.id] = [2]string{plain, other}
	}
	return out
}

// Impatient is for stores without a cache.
func Impatient(c *Config) { c.cache = 50 * time.Millisecond }

// Patient is for stores with one.
func Patient(c *Config) { c.cache = 0 }
