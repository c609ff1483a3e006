"""How the web edition and the EPUB are made from the manuscripts, `content/pages/` and `content/web/`: a file for each subject."""
