package front

import (
	"encoding/json"
	"strings"
)

// betweenParts is what stock writes between messages of one role that follow one another.
const betweenParts = "\n\n"

// joinParts makes one text of a message's content in parts. Stock makes a message of each, and joins those only for
// templates of its own: many a checkpoint's refuses two of a user's in a row. What is not all text stock judges.
func (a *asking) joinParts() string {
	a.eachMessage(func(message object) []object {
		return []object{withContent(message, joinedText)}
	})
	return ""
}

// resultsFirst has the results of tools come before what is said with them in one message, as they stand there: stock puts
// them behind it, where templates look for them in vain.
func (a *asking) resultsFirst() string {
	a.eachMessage(func(message object) []object {
		var blocks []json.RawMessage
		if message.read("content", &blocks) != nil {
			return []object{message}
		}
		results, others := parted(blocks, isResult)
		if len(results) == 0 || len(others) == 0 {
			return []object{message}
		}
		return []object{withContent(message, always(results)), withContent(message, always(others))}
	})
	return ""
}

// eachMessage puts what change makes of a message in its place. Messages that can't be read stay, for stock to refuse.
func (a *asking) eachMessage(change func(object) []object) {
	a.request = a.request.edited(func(f field) (field, bool) {
		var messages []object
		if !strings.EqualFold(f.name, "messages") || json.Unmarshal(f.value, &messages) != nil || messages == nil {
			return f, true
		}
		made := []object{}
		for _, message := range messages {
			made = append(made, change(message)...)
		}
		if value, err := json.Marshal(made); err == nil {
			f.value = value
		}
		return f, true
	})
}

// withContent gives the message with its content as change makes it.
func withContent(message object, change func(json.RawMessage) json.RawMessage) object {
	return message.edited(func(f field) (field, bool) {
		if strings.EqualFold(f.name, "content") {
			f.value = change(f.value)
		}
		return f, true
	})
}

// joinedText gives one text for several, and anything else as it is.
func joinedText(content json.RawMessage) json.RawMessage {
	var parts []struct {
		Type string
		Text *string
	}
	if json.Unmarshal(content, &parts) != nil || len(parts) == 0 {
		return content
	}
	var texts []string
	for _, part := range parts {
		if part.Type != "text" || part.Text == nil {
			return content
		}
		texts = append(texts, *part.Text)
	}
	text, err := json.Marshal(strings.Join(texts, betweenParts))
	if err != nil {
		return content
	}
	return text
}

// isResult is true of a block with what a tool gave.
func isResult(block json.RawMessage) bool {
	var told struct{ Type string }
	return json.Unmarshal(block, &told) == nil && (told.Type == "tool_result" || told.Type == "web_search_tool_result")
}

// parted gives those that are so, and those that are not, each in their order.
func parted(blocks []json.RawMessage, is func(json.RawMessage) bool) (so, not []json.RawMessage) {
	for _, block := range blocks {
		if is(block) {
			so = append(so, block)
		} else {
			not = append(not, block)
		}
	}
	return so, not
}

func always(blocks []json.RawMessage) func(json.RawMessage) json.RawMessage {
	return func(content json.RawMessage) json.RawMessage {
		if value, err := json.Marshal(blocks); err == nil {
			return value
		}
		return content
	}
}
