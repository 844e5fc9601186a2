package resources

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/portals"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/values"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/inventory"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// The parts of what the page shows about a resource.
const (
	outputs    = ""
	inputs     = "inputs"
	history    = "history"
	neighbours = "neighbours"
)

// panel is what the page shows about one resource.
type panel struct {
	*model
	Resource inventory.Resource
	// Found reports that the state has the resource.
	Found bool
	Part  string
	// Values are the outputs or inputs, of which More are left out. Outputs and Inputs are their numbers.
	Values               []values.Value
	More                 int
	NumOutputs, NumInput int
	// Portal is the page about the resource in the console of its provider.
	Portal  portals.Link
	History stacks.Touches
	// Stacks are the neighbours of the stack, for the resource that represents it, and Read is the stack that a StackReference
	// reads.
	Stacks stack.Neighbours
	Read   *store.Stack
	// Children are the resources whose parent is this one.
	Children []int32
}

// panel reads what is known about the selected resource.
func (p *pages) panel(v *page.Visit, m *model) (templ.Component, error) {
	s := panel{model: m}
	if s.Resource, s.Found = m.chosen(); s.Resource.URN == "" || m.Problem != "" {
		return nothing(), nil
	}
	switch part := v.Query("part"); part {
	case inputs, history, neighbours:
		s.Part = part
	}
	if !s.Found {
		s.Part, s.Resource.Name = history, name(s.Resource.URN)
		s.Resource.Type = m.Failed[s.Resource.URN].Type
	}
	if s.Found {
		raw, err := p.Stacks.Resource(v.Context(), v.Who, v.Stack, s.Resource)
		if err != nil {
			return nil, err
		}
		s.properties(raw)
		s.children()
		if err := p.stacks(v, &s, raw); err != nil {
			return nil, err
		}
	}
	if s.Part == history {
		var err error
		if s.History, err = p.Stacks.Touches(v.Context(), v.Who, v.Stack, s.Resource.URN, v.Stack.Version); err != nil {
			return nil, err
		}
	}
	return s.view(), nil
}

// properties reads the outputs and inputs.
func (s *panel) properties(raw []byte) {
	out, in := rawjson.Member(raw, "outputs"), rawjson.Member(raw, "inputs")
	shown := out
	if s.Part == inputs {
		shown = in
	}
	s.Values, s.More = values.Flat(shown)
	s.NumOutputs, s.NumInput = len(s.Values)+s.More, len(s.Values)+s.More
	if s.Part == inputs {
		s.NumOutputs = values.Count(out)
	} else {
		s.NumInput = values.Count(in)
	}
	s.Portal = portals.Of(s.Resource.Type, s.Resource.ID, func(name string) string { return textOf(rawjson.Member(out, name)) })
}

// textOf returns a JSON string; "" for another value.
func textOf(raw []byte) (text string) {
	_ = json.Unmarshal(raw, &text) // an absent text stays empty
	return text
}

func (s *panel) children() {
	if s.isStack() {
		return
	}
	for i, r := range s.List.All {
		if r.Parent == s.Resource.URN && i != s.Place {
			s.Children = append(s.Children, int32(i))
		}
	}
}

// isStack reports whether the resource is the one that represents the stack.
func (s *panel) isStack() bool { return s.Resource.Type == stackType }

// referenceType is the type of the resource by which a program reads another stack.
const referenceType = "pulumi:pulumi:StackReference"

// stacks reads the neighbours of the stack, if the panel shows them or names one.
func (p *pages) stacks(v *page.Visit, s *panel, raw []byte) error {
	if !s.isStack() && s.Resource.Type != referenceType {
		return nil
	}
	var err error
	if s.Stacks, err = p.Heads.NeighboursOf(v, p.Stacks); err != nil || s.isStack() {
		return err
	}
	target := s.St.OrgName + "/" + s.St.Project + "/"
	switch named := textOf(rawjson.Member(rawjson.Member(raw, "inputs"), "name")); strings.Count(named, "/") {
	case 0:
		target += named
	case 1:
		org, stack, _ := strings.Cut(named, "/")
		target = org + "/" + s.St.Project + "/" + stack
	default:
		target = named
	}
	for i, st := range s.Stacks.Up {
		if st.Ref() == target {
			s.Read = &s.Stacks.Up[i]
		}
	}
	return nil
}

// needs and neededBy are the places of the resources next to the selected one.
func (s *panel) needs() []int32    { return s.List.Needs(s.Place) }
func (s *panel) neededBy() []int32 { return s.List.NeededBy(s.Place) }

// numNear is the number of neighbours except the parent.
func (s *panel) numNear() int {
	return len(s.needs()) + s.Resource.Omitted + len(s.neededBy()) + len(s.Children)
}

// parent returns the place of the parent, or -1.
func (s *panel) parent() int {
	if s.Resource.Parent == "" {
		return -1
	}
	return s.List.Find(s.Resource.Parent, false)
}

// graph shows the resource between those on which it depends and those that depend on it; nil without them.
func (s *panel) graph() *view.Graph {
	if s.isStack() {
		return s.Stacks.Graph
	}
	up, down := s.needs(), s.neededBy()
	if len(up)+len(down) == 0 {
		return nil
	}
	left, right := s.nodes(up), s.nodes(down)
	self := s.node(s.Place)
	label := self.Full + view.Sentence(" depends on ", left, len(up)) + view.Sentence(" is needed by ", right, len(down))
	return view.NewGraph(label, self, left, len(up), right, len(down))
}

func (s *panel) nodes(places []int32) (list []view.Node) {
	for _, at := range places[:min(len(places), view.Neighbours)] {
		list = append(list, s.node(int(at)))
	}
	return list
}

func (s *panel) node(place int) view.Node {
	r := s.List.All[place]
	n := view.Node{Name: r.Name, Second: console.ShortType(r.Type), Full: r.Name + " (" + r.Type + ")", Href: s.link(place)}
	if _, failed := s.Failed[r.URN]; failed {
		n.Mark, n.Word = view.MarkFailed, "failed"
	}
	return n
}

// link returns the page with another resource, and the same part of it.
func (s *panel) link(place int) string {
	r := s.List.All[place]
	old := ""
	if r.Delete {
		old = "1"
	}
	return s.With("urn", r.URN, "old", old) + "#res"
}

// tabs are the parts of the panel.
func (s *panel) tabs() []view.Tab {
	old := ""
	if s.Resource.Delete {
		old = "1"
	}
	one := func(text, part string, n int) view.Tab {
		t := view.Tab{Text: text, Href: s.With("part", part, "urn", s.Resource.URN, "old", old) + "#res", Current: s.Part == part}
		if n >= 0 {
			t.Count = words.Number(n)
		}
		return t
	}
	// The number of updates is known only where they are shown, because their events have to be read.
	past := -1
	if s.Part == history {
		past = len(s.History.List)
	}
	if !s.Found {
		return []view.Tab{one("History", history, past)}
	}
	near := s.numNear()
	if s.isStack() {
		near = len(s.Stacks.Up) + len(s.Stacks.Down)
	} else if s.parent() >= 0 {
		near++
	}
	return []view.Tab{one("Outputs", outputs, s.NumOutputs), one("Inputs", inputs, s.NumInput), one("History", history, past), one("Neighbours", neighbours, near)}
}

// fact is a line of facts: a link, a text, a time and who did it, as far as they are not empty.
type fact struct {
	Name, Link, Href, Class, Text, Who string
	// Title is the whole text, if it can be too long.
	Title string
	At    time.Time
	Mono  bool
}

// factList is what the panel says about the resource above its parts.
func (s *panel) factList() (list []fact) {
	r := s.Resource
	if r.ID != "" {
		list = append(list, fact{Name: "Id", Text: r.ID, Title: r.ID, Mono: true})
	}
	if text, at := s.provider(); at >= 0 {
		list = append(list, fact{Name: "Provider", Link: text, Href: s.link(at)})
	} else if text != "" {
		list = append(list, fact{Name: "Provider", Text: text})
	}
	for i, at := range []time.Time{r.Created, r.Modified} {
		if !at.IsZero() {
			list = append(list, s.update([]string{"Created", "Changed"}[i], at))
		}
	}
	if !s.isStack() {
		list = append(list, fact{Name: "Protected", Text: map[bool]string{true: "yes", false: "no"}[r.Protect]})
	}
	if at := s.parent(); at >= 0 {
		p := s.List.All[at]
		list = append(list, fact{Name: "Parent", Link: p.Name + " (" + stack.ShortType(p.Type) + ")", Href: s.link(at)})
	}
	for _, text := range s.marks() {
		list = append(list, fact{Name: "Mark", Text: text})
	}
	if s.Read != nil {
		list = append(list, fact{Name: "Reads", Link: s.Read.Project + "/" + s.Read.Name, Href: page.StackPath(*s.Read), Class: "lnk"})
	}
	return list
}

// update is the fact that an update created or changed the resource.
func (s *panel) update(did string, t time.Time) fact {
	f := fact{Name: did, At: t}
	e, known := s.Versions.at(t)
	if !known {
		return f
	}
	f.Link, f.Class, f.Text, f.Href = "v"+strconv.FormatInt(e.Version, 10), "lnk", ", ", console.ResourceOf(s.St, e.Update, s.Resource.URN)
	if e.EventsExpired {
		f.Href = console.UpdatePath(s.St, e.Update)
	}
	f.Who = cmp.Or(e.By.Name, e.By.Login)
	return f
}

// provider is what the panel says about the provider, with the place of its resource or -1.
func (s *panel) provider() (text string, place int) {
	at := strings.LastIndex(s.Resource.Provider, "::")
	if at < 0 {
		return "", -1
	}
	urn := s.Resource.Provider[:at]
	i := s.List.Find(urn, false)
	kind := provider(s.Resource.Type)
	if i >= 0 {
		kind = strings.TrimPrefix(s.List.All[i].Type, "pulumi:providers:")
	}
	label := name(urn)
	if version, isDefault := strings.CutPrefix(label, "default_"); isDefault {
		label = "default " + strings.ReplaceAll(version, "_", ".")
	}
	return kind + ", " + label, i
}

// ref is the stack for the commands that print its outputs, for the outputs of the stack; "" for others.
func (s *panel) ref() string {
	if s.isStack() && s.Part == outputs {
		return s.St.Ref()
	}
	return ""
}

func (s *panel) iconOfPanel() mark {
	if _, failed := s.Failed[s.Resource.URN]; failed {
		return mark{State: view.MarkFailed, Word: "failed"}
	}
	return iconOf(s.Resource)
}

// marks are what is special about the resource.
func (s *panel) marks() (list []string) {
	r := s.Resource
	for _, m := range []struct {
		is   bool
		text string
	}{
		{r.Delete, "replaced, waits for its deletion"},
		{r.Replace, "deleted, waits for its replacement"},
		{r.Taint, "tainted: the next update replaces it"},
		{r.Failed, "incomplete: its creation failed in part"},
		{r.External, "external: pulumi only reads it"},
		{r.Retain, "kept: pulumi forgets it instead of deleting it"},
	} {
		if m.is {
			list = append(list, m.text)
		}
	}
	return list
}

// nearList is a list of neighbours, of which more are left out.
type nearList struct {
	title string
	list  []nearOne
	more  int
}

type nearOne struct {
	mark               mark
	name, second, href string
}

// mostNeighbours bounds the neighbours of a list.
const mostNeighbours = 100

// lists are the neighbours by what they are to the resource.
func (s *panel) lists() (out []nearList) {
	add := func(title string, n, omitted int, one func(i int) nearOne) {
		l := nearList{title: title, more: max(0, n-mostNeighbours) + omitted}
		for i := range min(n, mostNeighbours) {
			l.list = append(l.list, one(i))
		}
		if n+omitted > 0 {
			out = append(out, l)
		}
	}
	if s.isStack() {
		for i, title := range []string{"Reads from", "Is read by"} {
			list := [][]store.Stack{s.Stacks.Up, s.Stacks.Down}[i]
			add(title, len(list), 0, func(i int) nearOne {
				return nearOne{mark{Icon: "stacks"}, list[i].Project + "/" + list[i].Name, "", page.StackPath(list[i])}
			})
		}
		return out
	}
	var parent []int32
	if at := s.parent(); at >= 0 {
		parent = []int32{int32(at)}
	}
	for i, title := range []string{"Parent", "Depends on", "Needed by", "Parent of"} {
		places := [][]int32{parent, s.needs(), s.neededBy(), s.Children}[i]
		omitted := 0
		if i == 1 {
			omitted = s.Resource.Omitted
		}
		add(title, len(places), omitted, func(i int) nearOne {
			r := s.List.All[places[i]]
			return nearOne{iconOf(r), r.Name, stack.ShortType(r.Type), s.link(int(places[i]))}
		})
	}
	return out
}
