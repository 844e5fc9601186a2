package journal

import (
	"bufio"
	"io"
	"iter"
	"slices"
	"strconv"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
)

// emptyVersion is the schema version of documents without a version.
const emptyVersion = 3

// Deployment is a state whose parts are raw JSON.
type Deployment struct {
	Version   int64
	Features  []string
	Members   []Member // all members except "resources", in their order
	Resources [][]byte
}

// Member is a member of a JSON object. The name contains the escapes of the JSON string.
type Member struct {
	Name  string
	Value []byte
}

// ReadState splits a document of the form {"version", "features", "deployment"} into its parts, which
// share memory with the document. A null deployment has no parts. The document must be valid JSON. hold
// reserves the memory overhead of each resource.
func ReadState(body []byte, hold Hold) (*Deployment, error) {
	d := &Deployment{Version: emptyVersion}
	for name, value := range rawjson.Members(body) {
		if isNull(value) {
			if name == "deployment" { // the last of repeated members counts
				d.Members, d.Resources = nil, nil
			}
			continue
		}
		switch name {
		case "version":
			n, err := number(value)
			if err != nil {
				return nil, fault.Invalid("member \"version\" of a state %s", err)
			}
			d.Version = n
		case "features":
			if err := texts(value); err != nil {
				return nil, fault.Invalid("member \"features\" of a state %s", err)
			}
			d.Features = textsOf(value)
		case "deployment":
			if !isObject(value) {
				return nil, fault.Invalid("member \"deployment\" of a state must be an object")
			}
			parsed, err := parseDeployment(value, hold)
			if err != nil {
				return nil, err
			}
			d.Members, d.Resources = parsed.Members, parsed.Resources
		}
	}
	return d, nil
}

func parseDeployment(raw []byte, hold Hold) (*Deployment, error) {
	d := &Deployment{}
	var members members
	for name, value := range rawjson.Members(raw) {
		if name != "resources" {
			members.set(name, value)
			continue
		}
		if !isNull(value) && !isList(value) {
			return nil, fault.Invalid("member \"resources\" of a deployment must be an array")
		}
		resources := resources{hold: hold}
		for resource := range rawjson.Elements(value) {
			if err := resources.add(resource); err != nil {
				return nil, err
			}
		}
		d.Resources = resources.list
	}
	d.Members = members.list
	return d, nil
}

// members are the members of an object. The last value of a repeated member counts.
type members struct {
	list []Member
	at   map[string]int
}

func (m *members) set(name string, value []byte) {
	if i, ok := m.at[name]; ok {
		m.list[i].Value = value
		return
	}
	if m.at == nil {
		m.at = map[string]int{}
	}
	m.at[name] = len(m.list)
	m.list = append(m.list, Member{name, value})
}

// Member returns the value of a member, or nil if the member is absent or null.
func (d *Deployment) Member(name string) []byte {
	for _, m := range d.Members {
		if m.Name == name && !isNull(m.Value) {
			return m.Value
		}
	}
	return nil
}

// setMember replaces the value of a member in place, or appends the member. A nil value removes it.
func (d *Deployment) setMember(name string, value []byte) {
	i := slices.IndexFunc(d.Members, func(m Member) bool { return m.Name == name })
	switch {
	case i >= 0 && value == nil:
		d.Members = slices.Delete(d.Members, i, i+1)
	case i >= 0:
		d.Members[i].Value = value
	case value != nil:
		d.Members = append(d.Members, Member{name, value})
	}
}

// with returns a deployment in which a member has another value. It shares all other parts with d.
func (d *Deployment) with(name string, value []byte) *Deployment {
	changed := *d
	changed.Members = slices.Clone(d.Members)
	changed.setMember(name, value)
	return &changed
}

// WriteTo writes the state's document. Equal states have equal documents.
func (d *Deployment) WriteTo(w io.Writer) (int64, error) {
	buffered := bufio.NewWriterSize(w, 64<<10)
	var total int64
	for part := range d.parts() {
		n, err := buffered.Write(part)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, buffered.Flush()
}

// Size returns the length of the state's document.
func (d *Deployment) Size() int {
	size := 0
	for part := range d.parts() {
		size += len(part)
	}
	return size
}

func (d *Deployment) parts() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		parts := writer{yield: yield}
		parts.text(`{"version":` + strconv.FormatInt(d.Version, 10))
		if len(d.Features) > 0 {
			parts.text(`,"features":`)
			parts.raw(encode(d.Features))
		}
		parts.text(`,"deployment":`)
		if len(d.Members) == 0 && len(d.Resources) == 0 {
			parts.text("null}")
			return
		}
		separator := "{"
		for _, m := range d.Members {
			parts.text(separator + `"` + m.Name + `":`)
			parts.raw(m.Value)
			separator = ","
		}
		if len(d.Resources) > 0 {
			parts.text(separator + `"resources":`)
			separator = "["
			for _, r := range d.Resources {
				parts.text(separator)
				parts.raw(r)
				separator = ","
			}
			parts.text("]")
		}
		parts.text("}}")
	}
}

// writer passes parts to yield until yield returns false.
type writer struct {
	yield   func([]byte) bool
	stopped bool
}

func (w *writer) text(s string) { w.raw([]byte(s)) }

func (w *writer) raw(b []byte) {
	if !w.stopped {
		w.stopped = !w.yield(b)
	}
}
