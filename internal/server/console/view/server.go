package view

import "github.com/a-h/templ"

// ServerPage returns a page about the server, with the navigation between such pages. part is the name of one of [ServerTabs].
func ServerPage(title, part, problem string, content templ.Component) Page {
	return Page{
		Title: title, Section: "server", Layout: Own, Bar: &Bar{Title: "Server"}, Body: FormPage("Server", ServerTabs(part), problem, content, nil),
	}
}
