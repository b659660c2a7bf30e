"""A capture as one page for a browser: `isvc-sync timeline`. `page/` is the page without its data."""
