package config

// referenceIntro and referenceOutro stand before and after the keys in docs/configuration.md.
const referenceIntro = `<!-- Generated from the field table in internal/config by go generate; do not edit. -->

# Configuration of the agent

In most cases only ` + "`token`" + ` is needed:

` + "```yaml" + `
# ` + FileName + `
token: pul-xxx
` + "```" + `

Every key can also be set with a variable, which is ` + "`" + envPrefix + "`" + ` and the key in upper case. A variable
wins over the file; an empty one counts as not set.

## The file

The agent reads one file: the one given with ` + "`--config`" + `, or the first it finds of

1. the current directory,
2. the home directory,
3. ` + "`/etc`" + `,
4. the directory of the agent's binary, symbolic links followed,

where it looks in each for ` + "`" + FileName + "`" + ` and then for the old name
` + "`" + OldFileName + "`" + `. Further files have no effect and are named in the log.

The file decides which server may run commands on this host. So the agent refuses a file that other
users can write to, or that belongs to anybody but root and the agent's own user, and warns about a
file with a token that other users can read.

Unknown keys, keys that are set twice and values that make no sense are errors, which name the file,
the line and the key, but never a secret. A key without a value, or with an empty one, has its
default. An empty list of what is allowed is an error, because it could mean nothing or everything.

Durations are written as in Go: numbers with the units ` + "`ns`, `us`, `ms`, `s`, `m` and `h`" + `, such
as ` + "`300ms`, `30s` or `1h30m`" + `.
`

const referenceOutro = `
## Keys of older and other agents

* ` + "`version`" + ` is accepted and has no effect.
* ` + "`workflow_runners_directory` and `workflow_runners_embeddable`" + ` are accepted with a warning and have
  no effect; ` + "`working_directory`" + ` took their place.
* ` + "`ecs`" + ` and its settings are refused: this agent has no ECS target.
* Unknown variables that begin with ` + "`" + envPrefix + "`" + ` only cause a warning, because Kubernetes makes such
  variables out of the names of services.
`
