package view

import (
	"net/url"
	"slices"
)

// Filters are the parameters in the URL of a list.
type Filters struct {
	Path   string
	Values url.Values
	// Parameters are the names of those that the list knows, and Place is the one that selects a later page.
	Parameters []string
	Place      string
}

// With returns the URL of the list with other values of parameters: change contains names, each followed by its value; ""
// removes a parameter. The result is the first page unless change names another.
func (f Filters) With(change ...string) string {
	values := url.Values{}
	for _, name := range f.Parameters {
		set := slices.DeleteFunc(slices.Clone(f.Values[name]), func(value string) bool { return value == "" })
		if name != f.Place && len(set) > 0 {
			values[name] = set
		}
	}
	for i := 0; i+1 < len(change); i += 2 {
		if change[i+1] == "" {
			values.Del(change[i])
		} else {
			values.Set(change[i], change[i+1])
		}
	}
	if len(values) == 0 {
		return f.Path
	}
	return f.Path + "?" + values.Encode()
}

// Others returns the names and values of the parameters except some, for the hidden inputs of a form.
func (f Filters) Others(except ...string) []Option {
	var list []Option
	for _, name := range f.Parameters {
		if name == f.Place || slices.Contains(except, name) {
			continue
		}
		for _, value := range f.Values[name] {
			if value != "" {
				list = append(list, Option{Value: name, Text: value})
			}
		}
	}
	return list
}

// MenuItem is a value of a parameter, as a link of a menu.
type MenuItem struct {
	Text, Href string
	Current    bool
}

// Menu returns the values of a parameter, and the text of the current one. The first option is the default.
func (f Filters) Menu(name string, options []Option) (text string, list []MenuItem) {
	current := f.Values.Get(name)
	for i, o := range options {
		is := o.Value == current
		if list = append(list, MenuItem{o.Text, f.With(name, o.Value), is}); is || i == 0 {
			text = o.Text
		}
	}
	return text, list
}
