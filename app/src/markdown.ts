// markdown.ts: the model's Markdown as safe HTML.

import DOMPurify from 'dompurify';
import { marked } from 'marked';

marked.use({ gfm: true, breaks: true, async: false, renderer: { checkbox: ({ checked }) => (checked ? '☑ ' : '☐ ') } });

// Links open elsewhere and say nothing about this page; images are not fetched, since nothing is sent anywhere.
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
    if (node.tagName === 'A') {
        node.setAttribute('target', '_blank');
        node.setAttribute('rel', 'noopener noreferrer');
    }
});

export function renderMarkdown(text: string): string {
    return DOMPurify.sanitize(marked.parse(text) as string, { FORBID_TAGS: ['img', 'style', 'form', 'input', 'iframe', 'video', 'audio'], FORBID_ATTR: ['style'] });
}

// The text cut between its top-level blocks, so that each is rendered by itself.
export function blocksOf(text: string): string[] {
    return marked.lexer(text).map((token) => token.raw);
}
