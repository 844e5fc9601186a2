package configure

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/settings"
)

// nameFlags returns err as text. It replaces the references to a missing or invalid key with the
// flags that set the key.
func (o Options) nameFlags(err error, path string) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		_, problem, inFile := strings.Cut(strings.TrimPrefix(line, path+":"), ": ")
		if !inFile || !strings.HasPrefix(line, path+":") {
			problem = line
		}
		for _, f := range o.flags() {
			switch {
			case !strings.HasPrefix(problem, f.key+": "):
			case f.value != "":
				lines[i] = f.name + ": " + strings.TrimPrefix(problem, f.key+": ")
			case problem == line: // the key is not in the file either
				lines[i] += ", or use " + f.name
			}
		}
	}
	return strings.Join(lines, "\n")
}

type settingFlag struct{ name, key, value string }

func (o Options) flags() []settingFlag {
	return []settingFlag{
		{"--service-url", "service_url", o.ServiceURL},
		{"--deploy-target", "deploy_target", o.DeployTarget},
		{"--token-file", "token", o.TokenFile},
	}
}

func (o Options) fromFlags() ([]settings.Change, error) {
	var changes []settings.Change
	add := func(flag, key, value string) error {
		change, err := config.Table().Check(settings.Change{Key: key, Value: value}, o.Load.Dirs())
		if err != nil && flag != "--set" {
			return config.Invalid(fmt.Errorf("%s: %s", flag, strings.TrimPrefix(err.Error(), key+": ")))
		}
		if err != nil {
			return config.Invalid(fmt.Errorf("%s: %w", flag, err))
		}
		changes = append(changes, change)
		return nil
	}
	for _, setting := range o.Set {
		key, value, found := strings.Cut(setting, "=")
		key = strings.TrimSpace(key)
		switch {
		case config.Table().IsSecret(key) && value != "":
			return nil, config.Invalid(fmt.Errorf("--set %s: other users can read the arguments of a program: put the value into a file and use --token-file", key))
		case !found:
			return nil, config.Invalid(errors.New("--set requires KEY=VALUE")) // the error omits the argument, which might be a token
		}
		if err := add("--set", key, value); err != nil {
			return nil, err
		}
	}
	for _, flag := range o.flags() {
		if flag.value == "" {
			continue
		}
		if flag.key == "token" {
			token, err := o.readToken()
			if err != nil {
				return nil, config.Invalid(err)
			}
			flag.value = token
		}
		if err := add(flag.name, flag.key, flag.value); err != nil {
			return nil, err
		}
	}
	if len(changes) == 0 {
		return nil, config.Invalid(errors.New("no setting is given: use --service-url, --token-file, --deploy-target or --set, or answer the questions of configure on a terminal"))
	}
	return changes, nil
}

// maxToken limits the size of a token, in bytes.
const maxToken = 64 << 10

func (o Options) readToken() (string, error) {
	from, name := o.In, "the standard input"
	if o.TokenFile != "-" {
		f, err := os.OpenFile(o.TokenFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close()
		from, name = f, o.TokenFile
	}
	data, err := io.ReadAll(io.LimitReader(from, maxToken+1))
	token := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: reading %s: %w", name, err)
	case len(data) > maxToken:
		return "", fmt.Errorf("--token-file: %s is larger than 64 KiB, the limit for a token", name)
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty", name)
	}
	return token, nil
}
