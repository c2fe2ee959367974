package text

import (
	"fmt"

	"kafila/ollama/pb"
)

// Terms says what taking part means for this machine.
func Terms(offer *pb.Offer) string {
	text := fmt.Sprintf("This machine would join the session of %s (members: %s there)\n"+
		"  model     %s\n"+
		"  lends     up to %s of memory\n"+
		"  downloads %s\n",
		offer.Host, ofWanted(offer.MembersPresent, offer.MembersWanted), modelIn(offer.Model, offer.Quantization),
		size(float64(offer.LendMemoryBytes)), downloads(offer))
	if offer.SpareBytes > 0 {
		text += fmt.Sprintf("  spares    up to %s more while idle, to go on when another machine is lost (--spare 0: none)\n",
			size(float64(offer.SpareBytes)))
	}
	for _, line := range Notices(offer.Notices) {
		text += line + "\n"
	}
	return text
}

// modelIn is a model with the form that its weights have in memory.
func modelIn(model, quantization string) string {
	if quantization == "" {
		return model
	}
	return model + " (" + quantization + ")"
}

// Notices are what people should know of a model, a line each.
func Notices(notices []string) []string {
	var lines []string
	for _, notice := range notices {
		lines = append(lines, "Note: "+notice+".")
	}
	return lines
}

func downloads(offer *pb.Offer) string {
	if offer.DownloadBytes == 0 {
		return "nothing: " + offer.Folder + " has the weights"
	}
	text := fmt.Sprintf("up to %s to %s (%s free)",
		size(float64(offer.DownloadBytes)), offer.Folder, size(float64(offer.FreeDiskBytes)))
	if offer.DownloadBytes > offer.FreeDiskBytes {
		text += "\n            That may be more than the disk holds: make room, or lend less with --memory"
	}
	return text
}

// Joining tells whether somebody can join now and, if not, what changes that.
func Joining(joining string) string {
	switch joining {
	case "locked":
		return "locked: `ollama session unlock` lets members in again"
	case "unreachable":
		return "impossible while the rendezvous does not answer: if it stays away, the host opens a room at another one, with a new code"
	case "paused":
		return "paused, since the code was guessed wrongly too often: `ollama session code --new` goes on with a new one"
	}
	return joining
}

// WayIn is what to do on the other machines or, while nobody can join, what changes that.
func WayIn(session *pb.Session, width int) string {
	if session.Joining != "" && session.Joining != "open" {
		return "Nobody can join with it now. Joining is " + Joining(session.Joining) + "."
	}
	return Invitation(session, width)
}

// Invitation is what to do on the other machines; a sentence on the rendezvous beside it is width characters wide.
func Invitation(session *pb.Session, width int) string {
	text := "On the other machines: ollama run --session " + session.Code
	if whole := elsewhere(session); whole != "" {
		text = "On the other machines of this network: ollama run --session " + session.Code +
			"\nWhere that finds nothing: ollama run --session " + whole
	}
	if session.RendezvousNote != "" {
		text += "\n" + sentences(session.RendezvousNote, width)
	}
	return text
}

// Ready says how to ask the model of a session that is ready.
func Ready(session *pb.Session) string {
	return "Ready. Chat with: ollama run " + session.Vehicle.GetName()
}
