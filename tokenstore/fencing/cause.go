package fencing

import "regexp"

// form is what the text of a token looks like, whatever the format that a policy wants.
type form uint8

const (
	unclear form = iota
	digits
	zxid
	bareHex
	znodePath
	pairOf
	uuid
	moment
	float
	signed
	quoted
	jws
	unset
)

// forms are tried in this order: a time with a fraction is a pair too, and a UUID may end as a znode does.
var forms = []struct {
	form    form
	pattern *regexp.Regexp
}{
	{digits, regexp.MustCompile(`^[0-9]+$`)},
	{signed, regexp.MustCompile(`^[+-][0-9]+$`)},
	{zxid, regexp.MustCompile(`^0[xX][0-9a-fA-F]{1,16}$`)},
	{bareHex, regexp.MustCompile(`^[0-9][0-9a-fA-F]{8,15}$`)}, // a zxid has its upper half from the first election on
	{float, regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[eE][+-]?[0-9]+$`)},
	{moment, regexp.MustCompile(`^(1[0-9]{9}\.[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?|[0-9]{8}T[0-9]{6}.*)$`)},
	{pairOf, regexp.MustCompile(`^[0-9]+[.:][0-9]+$`)},
	{uuid, regexp.MustCompile(`^(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)},
	{quoted, regexp.MustCompile(`^((W/)?".*"|'.*')$`)},
	{jws, regexp.MustCompile(`^eyJ[\w-]*\.[\w-]+\.[\w-]*$`)},
	{unset, regexp.MustCompile(`^(\$.*|\{.*\}|<.*>|null|nil|None|undefined)$`)},
	{znodePath, regexp.MustCompile(`^(/.*|.*[-_/][0-9]{10})$`)},
}

func formOf(text string) form {
	for _, f := range forms {
		if f.pattern.MatchString(text) {
			return f.form
		}
	}
	return unclear
}

// wants says what a client has to send, for the end of a sentence.
var wants = [...]string{Decimal: "a decimal number", Hex: "0x and hexadecimal digits", Znode: "the name of a sequential znode", Pair: "a pair such as 7.1042"}

// cause returns the likely cause why a text is no token of format f, as a clause, or "" where nothing better can be said than what
// is wrong with its characters. It decides nothing: the text is refused already. Nothing of the text is in the clause, since the
// text may be one that is not to be shown.
func (f Format) cause(text string) string {
	if f < Decimal || f > Pair {
		return ""
	}
	set := func(g Format) string { return ": set format: " + g.String() + ", or send " + wants[f] }
	switch form := formOf(text); form {
	case digits:
		switch {
		case f == Hex:
			return "the hex format needs the prefix 0x: digits alone are decimal, as client libraries print a czxid, or hexadecimal cut short; send " +
				wants[Hex] + ", or set format: decimal"
		case f == Znode && len(text) < 10:
			return "a sequential znode's name ends in 10 digits, and this is a number alone" + set(Decimal)
		case f == Znode && len(text) > 10:
			return "a number of more than 10 digits is no znode's name" + set(Decimal)
		case f == Pair:
			return "a pair needs two numbers joined by a dot or a colon, and this is one" + set(Decimal)
		}
	case zxid:
		if f != Hex {
			return "it looks like a ZooKeeper zxid, which is hexadecimal" + set(Hex)
		}
		return "write its prefix as 0x, in lower case"
	case bareHex:
		if f != Hex {
			return "it looks like a zxid without its 0x: set format: hex and send it with 0x, or send " + wants[f]
		}
		return "the hex format needs the prefix 0x, and it looks like a zxid without it"
	case znodePath:
		if f == Hex {
			return "it looks like the path of a znode: set format: znode, or send the znode's czxid, as " + wants[Hex]
		}
		if f != Znode {
			return "it looks like the path of a znode" + set(Znode)
		}
	case pairOf:
		if f != Pair {
			return "it is not a whole number; it looks like a pair, such as Raft's term and index" + set(Pair)
		}
	case uuid:
		return "it looks like a UUID, which has no order: a fence needs a number that grows; ids go with compare: hold and format: opaque alone"
	case moment:
		return "it is not a whole number; it looks like a time, and clocks go back: send the number that came with the lease"
	case float:
		return "it is not a whole number; it looks like a floating-point number, which loses digits: keep the token as text or as an integer"
	case signed:
		if text[0] == '-' {
			return "it carries a sign; tokens are unsigned, and a negative one comes from a counter that overflowed or was never set"
		}
		return "it carries a sign; tokens are unsigned: send the digits alone"
	case quoted:
		return "it stands in quotes: send it without them"
	case jws:
		return "it looks like a signed token (JWS), and the policy checks no signatures: send the number alone, as " + wants[f]
	case unset:
		return "it looks like a variable that was never filled in"
	}
	return ""
}

// misread reports whether a text that ends as a sequential znode does is a token of another form. Its last 10 digits would be another number.
func misread(text string) bool {
	switch formOf(text) {
	case zxid, uuid, pairOf, moment:
		return true
	case digits:
		return len(text) > 10
	}
	return false
}
