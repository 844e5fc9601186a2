// The scripts of all pages. Each module defines one custom element or a set of keys.
import "./live-page.js";
import "./local-time.js";
import "./copy-text.js";
import "./command-palette.js";
import "./definition-editor.js";
import "./deploy-dialog.js";
import "./keys.js";
import "./resource-tree.js";
import "./log-view.js";
import "./passkey-form.js";
import "./review-bar.js";
import "./secret-value.js";
import "./star.js";
import "./stack-list.js";
import "./suggestions.js";
